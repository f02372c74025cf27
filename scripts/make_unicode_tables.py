#!/usr/bin/env python3
"""Writes tokenizer/unicode/unicode_tables.c: what the reference tokenizer knows of every code point.

    python3 scripts/make_unicode_tables.py > tokenizer/unicode/unicode_tables.c

The reference is the Python package `tokenizers` 0.23.3: every table is made by asking it, none by reading a Unicode
file, because its parts follow different versions of Unicode (see tokenizer/unicode/unicode.h). Python's unicodedata
only proposes candidates for case pairs and decompositions; what the reference does with them is what is written.
Takes about two minutes. Needed only to follow a new version of the reference."""

import bisect
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

EXPECTED = "0.23.3"
END = 0x110000
ALL = [c for c in range(END) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))

CATEGORIES = ("Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs").split()
SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki
Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian
Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan
Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi
Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited
Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian
Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui
Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari
New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian
Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong
Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham
SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le
Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari
Ugaritic Unknown Vai Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()


def matched_by(pattern, codes=ALL, text=TEXT):
    """The code points that a regular expression of one character matches."""
    left = set(normalizers.Replace(Regex(pattern), "").normalize_str(text))
    return {c for c in codes if chr(c) not in left}


def kept_together(pre_tokenizer, sample):
    """The code points in pieces of TEXT that the pre-tokenizer does not cut off after `sample`."""
    found = set()
    for piece, _ in pre_tokenizer.pre_tokenize_str(TEXT):
        if len(pre_tokenizer.pre_tokenize_str(sample + piece[0])) == 1:
            found.update(map(ord, piece))
    return found


def runs_of(value_of):
    """[(start, value)] over all code points; surrogates continue what is before them."""
    runs, last = [], None
    for c in ALL:
        value = value_of(c)
        if value != last:
            runs.append((c, value))
            last = value
    return runs


def by_sets(named_sets):
    value = {}
    for bit, members in named_sets:
        for c in members:
            value[c] = value.get(c, 0) | bit
    return lambda c: value.get(c, 0)


def partition(names, spell):
    """value_of for sets that together cover every code point once."""
    value = {}
    for i, name in enumerate(names):
        for c in matched_by(spell(name)):
            assert c not in value, (name, hex(c))
            value[c] = i
    missing = [c for c in ALL if c not in value]
    assert not missing, (len(missing), hex(missing[0]))
    return value.__getitem__


def charsmap(bytes_to_x):
    """A normalizer that replaces each character, or grapheme, that begins with one of the bytes by an x."""
    units = [0] * 768  # the root's children at 256 ^ byte, the value 0 of each at 512 ^ byte
    units[0] = 256 << 10
    for byte in bytes_to_x:
        units[256 ^ byte] = 768 << 10 | 256 | byte
    return normalizers.Precompiled(struct.pack("<769I", 4 * len(units), *units) + b"x\0")


def graphemes():
    """Properties of characters that make graphemes: Precompiled replaces those of less than six bytes as one."""
    letter, beginnings = charsmap(b"a"), charsmap({chr(c).encode()[0] for c in ALL} - {0, ord("a")})
    joins = {c for c in ALL if letter.normalize_str("a" + chr(c)) == "x"}
    # The mark begins with one of the bytes too: it is an x by itself after what ends a grapheme.
    breaks = {0} | {c for c in ALL[1:0x10000 - 0x800] if beginnings.normalize_str(chr(c) + "\u0301") == "xx"}
    prepended = {c for c in ALL[1:] if c != ord("a") and beginnings.normalize_str(chr(c) + "a") == "x"}
    assert not (joins & breaks or joins & prepended or breaks & prepended)
    # Two pictographs with a joiner between them have more than five bytes: then the joiner stays.
    picture = charsmap({"©".encode()[0]})
    pictures = {c for c in ALL if c not in joins and "\u200d" in picture.normalize_str("©\u200d" + chr(c))}
    spacing = {c for c in joins if not picture.normalize_str("©" + chr(c) + "\u200d©\u0301").endswith("\u0301")}
    return by_sets([(1, joins), (2, breaks), (4, prepended), (8, pictures), (16, spacing)])


def flags():
    space = matched_by(r"\s")
    assert space == matched_by(r"[[:space:]]")
    rust_space = set(ALL) - {
        ord(c) for piece, _ in pre_tokenizers.WhitespaceSplit().pre_tokenize_str(TEXT) for c in piece
    }
    assert space == rust_space
    alphabetic = matched_by(r"\p{Alphabetic}")
    assert alphabetic == matched_by(r"[[:alpha:]]")
    assert matched_by(r"[[:alnum:]]") == alphabetic | matched_by(r"\p{Nd}")
    word = matched_by(r"\w")
    assert word == set(ALL) - matched_by(r"\W")
    digit, mark = matched_by(r"\p{Nd}"), matched_by(r"\p{M}")
    assert matched_by(r"[[:digit:]]") == matched_by(r"\d") == digit
    in_class = alphabetic | mark | digit | matched_by(r"\p{Pc}")
    assert matched_by(r"[\w]") == matched_by(r"[[:word:]]") == in_class
    assert word == in_class | {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}  # an oddity of Oniguruma, kept
    lower, upper = matched_by(r"\p{Lowercase}"), matched_by(r"\p{Uppercase}")
    assert lower == matched_by(r"[[:lower:]]") and upper == matched_by(r"[[:upper:]]")
    assert matched_by(r"[[:cntrl:]]") == matched_by(r"\p{Cc}")
    assert matched_by(r"[[:blank:]]") == matched_by(r"\p{Zs}") | {9}
    assert matched_by(r"[[:punct:]]") == matched_by(r"\p{P}") | matched_by(r"\p{S}")
    graph = set(ALL) - matched_by(r"\p{Cn}") - matched_by(r"\p{Cc}") - space
    assert matched_by(r"[[:graph:]]") == graph and matched_by(r"[[:print:]]") == graph | matched_by(r"\p{Zs}")
    return by_sets(
        [
            (1, word),
            (2, kept_together(pre_tokenizers.Whitespace(), "a")),
            (4, space),
            (8, kept_together(pre_tokenizers.Digits(individual_digits=False), "1")),
            (16, kept_together(pre_tokenizers.Punctuation(behavior="contiguous"), "!")),
            (32, alphabetic),
            (64, lower),
            (128, upper),
        ]
    )


def each(normalizer, strings):
    """The normal form of many strings, asked for at once; U+0000 takes part in nothing."""
    assert not any("\0" in s for s in strings)
    return normalizer.normalize_str("\0".join(strings)).split("\0")


def normal_flags():
    codes = ALL[1:]
    plain = [chr(c) for c in codes]
    form = {name: each(getattr(normalizers, name)(), plain) for name in ("NFC", "NFD", "NFKC", "NFKD")}
    # A mark of class 1 moves before every higher class, and any mark below 232 moves before U+0315.
    low, high = chr(0x334), chr(0x315)
    before = each(normalizers.NFD(), [chr(c) + low for c in codes])
    after = each(normalizers.NFD(), [high + chr(c) for c in codes])
    marks, nfd = set(), dict(zip(codes, form["NFD"]))
    for i, c in enumerate(codes):
        if nfd[c] == chr(c) and (before[i] != chr(c) + low or after[i] != high + chr(c)):
            marks.add(c)
    composed = [c for i, c in enumerate(codes) if form["NFD"][i] != chr(c) and form["NFC"][i] == chr(c)]
    seconds = {ord(nfd[c][-1]) for c in composed}
    firsts = {ord(normalizers.NFC().normalize_str(nfd[c][:-1])) for c in composed}
    sets = {name: {c for i, c in enumerate(codes) if form[name][i] != chr(c)} | marks for name in form}
    known = sets["NFKD"] | sets["NFD"] | seconds | firsts
    return by_sets(
        [(1, sets["NFC"] | seconds), (2, sets["NFD"]), (4, sets["NFKC"] | seconds), (8, sets["NFKD"]), (16, known)]
    )


CASE_WINDOW = 8  # tokenizer/unicode/unicode.h


def assert_found(mapping, rows):
    """Does as unicode_case(), which looks at no more than the last few series that begin before a code."""
    firsts = [row[0] for row in rows]
    for code, to in mapping.items():
        low = bisect.bisect_right(firsts, code)
        near = [r for r in rows[max(0, low - CASE_WINDOW) : low] if code <= r[1] and (code - r[0]) % r[2] == 0]
        assert near and code + near[-1][3] == to, hex(code)


def series(mapping):
    """{code: code} as arithmetic series of constant difference."""
    left, out = dict(sorted(mapping.items())), []
    for c in list(left):
        if c not in left:
            continue
        delta, best = left[c] - c, [c]
        for stride in (1, 2):
            row = [c]
            while (
                left.get(row[-1] + stride, row[-1] + stride) - (row[-1] + stride) == delta
                and row[-1] + stride in left
            ):
                row.append(row[-1] + stride)
            if len(row) > len(best):
                best, best_stride = row, stride
        for member in best:
            del left[member]
        out.append((best[0], best[-1], best_stride if len(best) > 1 else 1, delta))
    assert_found(mapping, out)
    return out


def lower_series():
    codes = ALL[1:]
    lowered = each(normalizers.Lowercase(), [chr(c) for c in codes])
    mapping = {c: ord(l) for c, l in zip(codes, lowered) if l != chr(c) and len(l) == 1}
    several = {c: l for c, l in zip(codes, lowered) if len(l) != 1}
    assert several == {0x130: "i\u0307"}, several
    return series(mapping)


def cased_candidates():
    found = set()
    for c in ALL:
        for other in (chr(c).lower(), chr(c).upper(), chr(c).title(), chr(c).casefold()):
            if other != chr(c):
                found.add(c)
                found.update(map(ord, other))
    # Characters that Python's tables do not have yet, by the reference's own properties.
    found |= matched_by(r"\p{Lu}") | matched_by(r"\p{Ll}") | matched_by(r"\p{Lt}") | matched_by(r"\p{Cased}")
    return sorted(found)


def fold_series():
    codes = cased_candidates()
    text = "".join(map(chr, codes))
    mapping = {}
    for c in codes:
        if c in mapping or (c < 128 and not chr(c).isalpha()):
            continue
        same = matched_by("(?i:[\\x{%X}])" % c, codes, text) - {k for k, v in mapping.items() if v != c}
        if len(same) < 2:
            continue
        for other in same:
            mapping[other] = c
    return series({k: v for k, v in mapping.items() if k != v})


def multi_folds():
    out = []
    for c in ALL:
        fold = chr(c).casefold()
        if len(fold) > 1:
            alone = normalizers.Replace(Regex("(?i:\\x{%X})" % c), "").normalize_str(fold)
            assert alone == "", hex(c)
            out.append((c, [ord(f) for f in fold]))
    return out


def write_runs(name, runs):
    print(f"\nstatic const uint32_t {name}_runs[] = {{")
    row = "   "
    for start, value in runs:
        word = " 0x%x," % (start << 11 | value)
        if len(row) + len(word) > 110:
            print(row)
            row = "   "
        row += word
    print(row + "\n};")
    print(f"const RunTable {name} = {{{name}_runs, sizeof {name}_runs / sizeof {name}_runs[0]}};")


def write_names(name, names):
    print(f"\nconst char *const {name}[] = {{")
    row = "   "
    for word in [f' "{n}",' for n in names] + [" NULL,"]:
        if len(row) + len(word) > 110:
            print(row)
            row = "   "
        row += word
    print(row + "\n};")


def write_case(name, rows):
    print(f"\nstatic const CaseSeries {name}_series[] = {{")
    row = "   "
    for entry in rows:
        word = " {0x%x, 0x%x, %d, %d}," % entry
        if len(row) + len(word) > 110:
            print(row)
            row = "   "
        row += word
    print(row + "\n};")
    print(f"const CaseTable {name} = {{{name}_series, sizeof {name}_series / sizeof {name}_series[0]}};")


def main():
    if tokenizers.__version__ != EXPECTED:
        sys.exit(f"tokenizers {tokenizers.__version__} is installed, expected {EXPECTED}")
    print("/* unicode_tables.c - generated by scripts/make_unicode_tables.py from the Python package tokenizers")
    print(f" * {EXPECTED}; see unicode.h for what the numbers mean. Do not edit. */")
    print('#include "tokenizer/unicode/unicode.h"')
    print("\n/* clang-format off */")
    write_names("unicode_category_names", CATEGORIES)
    write_runs("unicode_categories", runs_of(partition(CATEGORIES, lambda n: "\\p{%s}" % n)))
    write_names("unicode_script_names", SCRIPTS)
    write_runs("unicode_scripts", runs_of(partition(SCRIPTS, lambda n: "\\p{%s}" % n)))
    write_runs("unicode_flags", runs_of(flags()))
    write_runs("unicode_normal", runs_of(normal_flags()))
    write_runs("unicode_graphemes", runs_of(graphemes()))
    write_case("unicode_lower", lower_series())
    write_case("unicode_fold", fold_series())
    print("\nconst MultiFold unicode_multi_folds[] = {")
    row = "   "
    folds = multi_folds()
    for code, fold in folds:
        word = " {0x%x, {%s}}," % (code, ", ".join("0x%x" % f for f in fold))
        if len(row) + len(word) > 110:
            print(row)
            row = "   "
        row += word
    print(row + "\n};")
    print("const size_t unicode_multi_fold_count = sizeof unicode_multi_folds / sizeof unicode_multi_folds[0];")
    print("/* clang-format on */")


if __name__ == "__main__":
    main()
