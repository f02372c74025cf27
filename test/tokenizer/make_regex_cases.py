#!/usr/bin/env python3
"""make_regex_cases.py - what the reference makes of regular expressions: one JSON object a line for test_regex.c.

usage: make_regex_cases.py > test/data/tokenizers/regex.jsonl

Each line has a pattern, a text, and the text with every match replaced by '#' (`replaced`), by the Python package
tokenizers 0.23.3, whose expressions are Oniguruma's."""

import json
import random

from tokenizers import Regex, normalizers

CASES = [
    # options, dots and lines
    (r"(?m:.)", "a\nb"),
    (r".", "a\nb\rc"),
    (r"^a", "aa\na"),
    (r"a$", "aa\na\n"),
    (r"^", "a\nb\n"),
    (r"$", "a\nb\n"),
    (r"\Z", "a\n"),
    (r"\z", "a\n"),
    (r"\A", "a\n"),
    (r"(?m)^.$", "a\nb"),
    (r"\s+$", "a  \n  "),
    (r"^\s+", "  a\n  b"),
    (r"x(?i)b|c", "xB C xC"),
    (r"(?i)a", "A"),
    (r"(?-i:a)", "A"),
    (r"(?i-m:a)", "A"),
    (r"(?i:a)b(?i)c|D", "aBc Abc d"),
    (r"(?:(?i)a|b)c", "Ac Bc AC"),
    (r"((?i)a|b)c", "Ac Bc AC"),
    (r"(?#c)a", "a"),
    # repetition
    (r"a{2}?", "aaaa"),
    (r"a{2}?", "b"),
    (r"a{2}?", "aab"),
    (r"a{2,}?", "aaaab"),
    (r"a{,2}?", "aab"),
    (r"a{1,2}+", "aaaaa"),
    (r"a{2}+", "b"),
    (r"a{3}+", "aaaaaa"),
    (r"a{,2}", "aaaaa"),
    (r"a{", "a{b"),
    (r"a{x}", "a{x}"),
    (r"a{,}", "a{,}"),
    (r"a{1,", "a{1,"),
    (r"a{1,a}", "a{1,a}"),
    (r"a{ 1}", "a{ 1}"),
    (r"a{1 ,2}", "aaa"),
    (r"a{0}", "aa"),
    (r"a{0,0}b", "ab"),
    (r"a**", "aaa"),
    (r"a+?", "aaa"),
    (r"(?:a+?){2}", "aaaa"),
    (r"a++", "aaa"),
    (r"x?+x", "x"),
    (r"x*+x", "xx"),
    (r"x*?y", "xxy"),
    (r"x??y", "xy"),
    (r"(?:a|b)*+c", "ababc"),
    (r"(?:a?)*b", "aab"),
    (r"(?:a?)+", "baa"),
    (r"(?:a|b){2}?", "abab"),
    (r"\p{N}{1,3}+", "12345"),
    (r"x{0,1}+", "xx"),
    (r"a{1,3}?", "aaa"),
    (r"", "ab"),
    (r"a*", "baac"),
    (r"a|", "ba"),
    (r"(|a)b", "ab"),
    # groups and what looks around
    (r"(?>a+)b", "aab"),
    (r"(?>a|ab)c", "abc ac"),
    (r"(?:a|ab)(?:c|bcd)(?:d*)", "abcd"),
    (r"(?<n>a)", "aa"),
    (r"(a|b)c", "ac"),
    (r"a(?=b)", "ab ac"),
    (r"a(?!b)", "ab ac"),
    (r"(?<=ab|c)d", "abd cd"),
    (r"(?<!a|bc)d", "ad bcd xd"),
    (r"(?<=\s)\S", "a b"),
    (r"(?<!\d)\d{3}(?!\d)", "123 1234"),
    (r"(?=(\d{3})+$)", "123456"),
    (r"\d{1,3}(?=(?:\d{3})*\b)", "1234567"),
    (r"(?:)", "ab"),
    (r"\bfoo\b", "foo xfoo"),
    (r"\Ba", "ba a"),
    (r"\b", " ² a "),
    (r"\b", "a\u0301\u200db"),
    # escapes
    (r"\h", "0aFgx"),
    (r"\v", "a\x0b\n"),
    (r"\x41", "A"),
    (r"\x{1F600}", "😀"),
    (r"\u0041", "A"),
    (r"\-", "-"),
    (r"\R", "a\r\nb\n\u2028\x85\x0b"),
    (r"\N", "a\n"),
    (r"\O", "a\n"),
    (r"\e\a\f\t", "\x1b\x07\x0c\t"),
    (r"\0", "\0"),
    (r"\012", "\n"),
    (r"\08", "\x008"),
    (r"\0101", "A"),
    (r"\0012", "\x012"),
    (r"\é", "é"),
    (r"\_", "_"),
    (r"\ ", "a b"),
    (r"]", "]"),
    (r"}", "}"),
    (r"a#b", "a#b"),
    (r"\d", "1٣²"),
    (r"\D", "1a"),
    (r"\w", "aé_1٣\u0301‿ⅷ²\u200d"),
    (r"\W", "a ²!"),
    (r"\s", "\x1c\x85\u00a0\u180e\u200b\ufeff\u3000"),
    (r"\S", "a "),
    # classes
    (r"[]a]", "]ab"),
    (r"[^]a]", "]ab"),
    (r"[a&&b]", "ab"),
    (r"[a-z&&[^b]]", "abc"),
    (r"[^a&&b]", "abc"),
    (r"[a-c&&b-d&&c]", "abcd"),
    (r"[^a-c&&b-d]", "abcde"),
    (r"[\w&&[^\d_]]", "a1_"),
    (r"[[a-c]&&[b-d]]", "abcd"),
    (r"[&&a]", "a&"),
    (r"[a&&]", "a&"),
    (r"[a&b]", "a&"),
    (r"[\w-]", "a-"),
    (r"[--a]", "-a"),
    (r"[a-]", "a-"),
    (r"[-a]", "-a"),
    (r"[a\-z]", "-az"),
    (r"[+--]", "+,-"),
    (r"[!--/]", "!-/"),
    (r"[a-c-e]", "abcde-"),
    (r"[a-a]", "a"),
    (r"[a[bc]]", "abc["),
    (r"[[a]b]", "ab"),
    (r"[\b]", "\x08b"),
    (r"[\n-\r]", "\n\x0b\r\x0e"),
    (r"[\x{41}-\x{43}]", "ABC"),
    (r"[a-\x63]", "abcd"),
    (r"[^\x00-\x7F]", "aé"),
    (r"[\u4e00-\u9fa5]+", "一二a"),
    (r"[.$(]", ".$(a"),
    (r"[\]]", "]"),
    (r"[\^a]", "^"),
    (r"[a^]", "^"),
    (r"[^\S\n]", " \n"),
    (r"[\s\S]", "a\n"),
    (r"[\w]", "a²"),
    (r"[^\W]", "a²"),
    (r"[[:alpha:]]", "a1é"),
    (r"[[:^alpha:]]", "a1"),
    (r"[[:punct:]]", "a!$+é"),
    (r"[[:word:]]", "a_²"),
    (r"[[:alnum:]]", "a1_"),
    (r"[[:space:]]", "a \x85"),
    (r"[[:digit:]]", "1٣"),
    (r"[[:upper:]]", "aA"),
    (r"[[:lower:]]", "aAªª"),
    (r"[[:cntrl:]]", "\x01a"),
    (r"[:alpha:]", ":alph1"),
    (r"[^[:alpha:]]", "a1"),
    (r"[a-z[:digit:]]", "a1-"),
    # properties
    (r"\p{^L}", "a1"),
    (r"\P{L}", "a1"),
    (r"[\p{^L}]", "a1"),
    (r"\p{Han}", "a一"),
    (r"\p{han}", "a一"),
    (r"\p{Hani}", "a一"),
    (r"\p{Letter}", "a一"),
    (r"\p{LC}", "aA一ǅ"),
    (r"\p{Alphabetic}", "a1ⅷ"),
    (r"\p{Lu}", "aA"),
    (r"\p{ L }", "a"),
    (r"\p{l u}", "A"),
    (r"\p{Any}", "a"),
    (r"\p{ASCII}", "aé"),
    (r"\p{Greek}\p{Cyrillic}", "αд"),
    (r"\p{Common}", "1a"),
    (r"\p{Inherited}", "\u0301"),
    (r"\p{M}", "\u0301a"),
    (r"\p{Sc}", "$€a"),
    (r"\p{Cn}", "\u0378a"),
    (r"\p{C}", "\x00\u0378\ue000a"),
    (r"\p{Z}", " \u2028a"),
    (r"\p{Word}", "a_²!"),
    (r"\p{Alnum}", "a1!"),
    (r"\p{White_Space}", " a\x85"),
    (r"\p{Uppercase}\p{Lowercase}", "ⅧⅷAa"),
    (r"[\p{L}&&\p{Han}]", "a一"),
    (r"[\p{L}&&[^\p{Han}]]+", "a一b"),
    (r"\p{Decimal_Number}", "1²"),
    # young and old characters: Unicode 16 is known, 17 is not
    (r"\p{L}", "\U00010d4a\u1c89\ua7cb\U000105c9\U00010940"),
    (r"\p{N}", "\U00010d40\U00011de0"),
    (r"\p{M}", "\U00010d69\u0897\u1df9"),
    # case
    (r"(?i:k)", "kK\u212a"),
    (r"(?i:'s|'t)", "'S 'ſ 't 's"),
    (r"(?i:i)", "iIİı"),
    (r"(?i:é)", "É"),
    (r"(?i:σ)", "Σςσ"),
    (r"(?i:ǆ)", "ǅǄǆ"),
    (r"(?i:Ω)", "ωΩΩ"),
    (r"(?i:[a-c])", "aAbBd"),
    (r"(?i:[a-z])", "Aa ſ K é"),
    (r"(?i:[^a-z])", "aAsſK1"),
    (r"(?i:[[^a]])", "aA1"),
    (r"(?i:\p{Lu})", "aA"),
    (r"(?i:[\p{Lu}x])", "aAX1"),
    (r"(?i:[^\p{Lu}])", "aA1"),
    (r"(?i:[\p{Lu}&&[A-C]])", "aAcCd"),
    (r"(?i:\w)", "aſ²"),
    (r"(?i:[à-ï])", "Àïß"),
    # the patterns of real tokenizers
    (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", "I'm  12 3a's!! \n\n x'S"),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "I'M  12345 a's!!\r\n\n  x",
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "HTTPServer don'T 中文Abc/\n 1234 ÀÉe\u0301x",
    ),
    (
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "#define x_y  a+b \n(c)",
    ),
    (
        r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|\s+",
        "中文 Hello 日本語テスト123",
    ),
]


# A character of each category, of the scripts that have a code, and those that flags and brackets distinguish.
ALL_KINDS = (
    "aAǅʰª中Ⅷⅷ\u0301\u0903\u20dd1٣²½‿-(«»)!+€^¶ \u00a0\u2028\u2029\x01\x85\xad\ue000\u0378_9\t\n"
    "عաবдकሀაαד\u3042アខກᠠကதతབ\u0345ⓐⒶ\u200dF\x7fº"
)
NAMES = """Letter Mark Number Punctuation Punct Symbol Separator Other LC Cased_Letter Uppercase_Letter Lowercase_Letter
Titlecase_Letter Modifier_Letter Other_Letter Combining_Mark Nonspacing_Mark Spacing_Mark Enclosing_Mark Decimal_Number
digit Letter_Number Other_Number Connector_Punctuation Dash_Punctuation Open_Punctuation Close_Punctuation
Initial_Punctuation Final_Punctuation Other_Punctuation Math_Symbol Currency_Symbol Modifier_Symbol Other_Symbol
Space_Separator Line_Separator Paragraph_Separator Control cntrl Format Private_Use Unassigned
Alphabetic alpha Lowercase lower Uppercase upper White_Space space Any ASCII word alnum L M N P S Z C
Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs Cc Cf Co Cn
Arab Armn Beng Cyrl Deva Ethi Geor Grek Hang Hani Hebr Hira Kana Khmr Laoo Latn Mong Mymr Taml Telu Tibt Zinh Zyyy Zzzz
Arabic Armenian Bengali Cyrillic Devanagari Ethiopic Georgian Greek Han Hebrew Hiragana Katakana Khmer Lao Latin
Mongolian Myanmar Tamil Telugu Tibetan Inherited Common Unknown""".split()
BRACKETS = "alpha alnum digit lower upper space punct cntrl word".split()


def set_cases():
    """Every name of a set, by what it takes of one character of each kind."""
    for name in NAMES:
        yield rf"\p{{{name}}}", ALL_KINDS
    for name in ("L", "Lu", "word", "Han", "alnum", "LC"):
        for opening in (r"\P{", r"\p{^", r"\P{^"):
            yield f"{opening}{name}}}", ALL_KINDS
        for opening in ("[", "[^"):
            yield rf"{opening}\p{{{name}}}1]", ALL_KINDS
    for name in BRACKETS:
        yield f"[[:{name}:]]", ALL_KINDS
        yield f"[[:^{name}:]]", ALL_KINDS
        yield f"[^[:{name}:]_]", ALL_KINDS
    for letter in "dDwWsShHvRNO":
        yield f"\\{letter}", ALL_KINDS
        if letter not in "RNO":
            yield f"[\\{letter}]", ALL_KINDS
            yield f"[^\\{letter}]", ALL_KINDS
    single = (r"\x7f", r"[\x00-\x7f]", r"\x{7f}", r"[\x{80}-\x{10FFFF}]", r"\u00aA", r"[\b]", r"\x4", r"\x{00000041}")
    for pattern in single:
        yield pattern, ALL_KINDS + "\x04\b\x0f7"


def random_set(rng, depth=0):
    members = []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(7 if depth < 2 else 5)
        if kind < 2:
            members.append(rng.choice("abcxé1 "))
        elif kind == 2:
            members.append("-".join(sorted(rng.sample("abcdefx", 2))))
        elif kind == 3:
            named = "[:alpha:]" if depth else r"\S"
            members.append(rng.choice((r"\d", r"\s", r"\w", r"\n", r"\p{Lu}", r"\P{L}", named)))
        elif kind == 4:
            members.append(rng.choice("ABé.é"))
        else:
            members.append(random_set(rng, depth + 1))
    if depth < 2 and rng.random() < 0.2:
        members.insert(rng.randrange(1, len(members) + 1), "&&" + random_set(rng, depth + 1))
    return "[" + rng.choice(("", "", "^")) + "".join(members) + "]"


def random_expression(rng, depth=0):
    def atom():
        kind = rng.randrange(12)
        if kind < 5:
            return rng.choice(("a", "b", "c", "a", "b", "é", ".", r"\d", " ", r"\w", r"\s", r"\n", "A"))
        if kind == 5:
            return random_set(rng)
        if kind == 6 and depth < 3:
            return "(?:" + random_expression(rng, depth + 1) + ")"
        if kind == 7 and depth < 3:
            opening = rng.choice(("(", "(?>", "(?i:", "(?m:", "(?<n>", "(?i)(?-i:"))
            return opening + random_expression(rng, depth + 1) + ")"
        return rng.choice("abc")

    def item():
        if rng.random() < 0.12:
            anchor = rng.choice(("^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z", "(?=", "(?!", "(?<=", "(?<!"))
            if not anchor.startswith("("):
                return anchor
            return anchor + (random_set(rng) if "<" in anchor else random_expression(rng, 3)) + ")"
        repeats = "? * + {2} {1,2} {,2} {2,} +? *? ?? ++ {1,2}? {2}?".split()
        quantifier = rng.choice(["", "", "", *repeats])
        return atom() + quantifier

    branches = ["".join(item() for _ in range(rng.randrange(1, 4))) for _ in range(rng.choice((1, 1, 2, 3)))]
    return "|".join(branches)


def random_cases(n):
    rng = random.Random("expressions")
    for _ in range(n):
        text = "".join(rng.choice("aaabbbccéA1 \n.x") for _ in range(rng.randrange(0, 14)))
        yield random_expression(rng), text


def main():
    for pattern, text in [*CASES, *set_cases(), *random_cases(900)]:
        try:
            replaced = normalizers.Replace(Regex(pattern), "#").normalize_str(text)
        except BaseException:  # what the reference cannot do, a panic included
            continue
        print(json.dumps({"pattern": pattern, "text": text, "replaced": replaced}))


if __name__ == "__main__":
    main()
