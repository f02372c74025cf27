"""screen.py - what stands on a terminal's screen after what was written to it: as much of one as a line editor uses.

Carriage return, line feed, backspace, tab, and the sequences that move the cursor or erase; characters of two columns
and of none; a line that is full breaks when the next character comes. Another sequence is a mistake of the writer.
"""
import re
import unicodedata

SEQUENCE = re.compile(r"\x1b\[([?]?[0-9;]*)([A-Za-z])")
IGNORED = {"h", "l", "m"}  # modes and colours


def columns_of(character):
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Screen:
    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]  # "" is the right half of a wide character
        self.row = self.column = 0

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def resize(self, rows, columns):
        """As xterm does it: lines are cut or grow, none is broken anew."""
        self.cells = [(row + [" "] * columns)[:columns] for row in self.cells[:rows]]
        self.cells += [[" "] * columns for _ in range(rows - len(self.cells))]
        self.rows, self.columns = rows, columns
        self.row, self.column = min(self.row, rows - 1), min(self.column, columns - 1)

    def down(self):
        if self.row + 1 < self.rows:
            self.row += 1
        else:
            self.cells = self.cells[1:] + [[" "] * self.columns]

    def put(self, character):
        width = columns_of(character)
        if width == 0:
            at = self.column - 1
            while at > 0 and self.cells[self.row][at] == "":
                at -= 1
            self.cells[self.row][at] += character
            return
        if self.column + width > self.columns:
            self.column = 0
            self.down()
        row = self.cells[self.row]
        for i in range(self.column, self.column + width):  # half of a wide character is no character
            if row[i] == "" and i > 0:
                row[i - 1] = " "
            if i + 1 < self.columns and row[i + 1] == "":
                row[i + 1] = " "
        row[self.column:self.column + width] = [character] + [""] * (width - 1)
        self.column += width

    def erase(self, row, start, end):
        self.cells[row][start:end] = [" "] * (end - start)

    def obey(self, arguments, letter):
        if letter in IGNORED:
            return
        n = int(arguments) if arguments.isdigit() else 0
        self.column = min(self.column, self.columns - 1)
        if letter == "A":
            self.row = max(0, self.row - max(n, 1))
        elif letter == "B":
            self.row = min(self.rows - 1, self.row + max(n, 1))
        elif letter == "C":
            self.column = min(self.columns - 1, self.column + max(n, 1))
        elif letter == "D":
            self.column = max(0, self.column - max(n, 1))
        elif letter == "G":
            self.column = min(self.columns, max(n, 1)) - 1
        elif letter == "H" and not arguments:
            self.row = self.column = 0
        elif letter == "K" and n == 0:
            self.erase(self.row, self.column, self.columns)
        elif letter == "J" and n in (0, 2):
            first = 0 if n else self.row
            self.erase(first, 0 if n else self.column, self.columns)
            for row in range(first + 1, self.rows):
                self.erase(row, 0, self.columns)
        else:
            raise AssertionError(f"the sequence {arguments}{letter} is not expected here")

    def feed(self, text):
        """Returns how much was taken: a sequence may come in pieces."""
        at = 0
        while at < len(text):
            character = text[at]
            if character == "\x1b":
                match = SEQUENCE.match(text, at)
                if not match:
                    assert len(text) - at < 12, f"no sequence: {text[at:at + 12]!r}"
                    return at
                self.obey(match[1], match[2])
                at = match.end()
                continue
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self.down()
            elif character == "\b":
                self.column = max(0, min(self.column, self.columns - 1) - 1)
            elif character == "\t":
                self.column = min(self.columns - 1, (self.column // 8 + 1) * 8)
            elif character >= " ":
                self.put(character)
            at += 1
        return at
