"""template_sweeps.py - templates that walk through the edges of each operator, method, filter, test and tag.

Called by: make_template_cases.py, which renders them with jinja2. Calls that succeed for all arguments are one template
that loops over them; a call that may fail is a template of its own, since a failure ends a rendering."""

import itertools
import random


class Raw(str):
    """An expression that stands in a list of literals as it is."""


def lit(value):
    """The value as a literal of the template language."""
    if isinstance(value, Raw):
        return str(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + "".join(escaped(c) for c in value) + "'"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(lit(item) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{lit(k)}: {lit(v)}" for k, v in value.items()) + "}"
    return repr(value)


def escaped(c):
    if c in "'\\":
        return "\\" + c
    if c.isprintable():
        return c
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def sweep(body, **ranges):
    """The body for all combinations of the named values."""
    begin = "".join(f"{{% for {name} in {lit(values)} %}}" for name, values in ranges.items())
    return begin + body + "{% endfor %}" * len(ranges)


def each(expressions):
    return ["{{ " + expression + " }}" for expression in expressions]


def product(pattern, **choices):
    """A template for each combination of texts: "{a} + {b}"."""
    return each(pattern.format(**dict(zip(choices, texts))) for texts in itertools.product(*choices.values()))


# --- numbers

INTEGERS = [0, 1, -1, 2, -2, 3, -3, 7, -7, 10, 255, -1000, 4294967296, 9223372036854775807, -9223372036854775807]
FLOATS = [0.0, -0.0, 0.5, 1.5, -1.5, 2.5, 3.0, -7.5, 1e16, 1e-5, 1e300, 123456.789, 0.1, -0.3, 1e-3]
SHOWN = [1e-4, 1e-5, 9.9999e-5, 0.00012345678901234567, 1e15, 1e16, 9999999999999998.0, 123456789012345680.0,
         9007199254740993.0, 0.30000000000000004, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 1e21, 1e22,
         1e23, 4.35, 100.0, 1234.5, 0.1 + 0.7, 2 / 3, 1e100, 12345678.9, 1.1, 1e-7, 1.5e-10, 5e15, 5e16]


def numbers():
    yield sweep("{{ a + b }} {{ a - b }} {{ a * b }};", a=INTEGERS[:13], b=INTEGERS[:12])
    yield sweep("{{ a / b }} {{ a // b }} {{ a % b }};", a=INTEGERS, b=INTEGERS[1:])
    yield sweep("{{ a + b }} {{ a - b }} {{ a * b }};", a=FLOATS, b=FLOATS + INTEGERS[:10])
    yield sweep("{{ a / b }} {{ a // b }} {{ a % b }};", a=FLOATS + INTEGERS[:10], b=FLOATS[2:] + INTEGERS[1:10])
    yield sweep("{{ [a < b, a <= b, a > b, a >= b, a == b, a != b]|map('int')|join }} ",
                a=INTEGERS + FLOATS + [9.223372036854775807e18, -9.3e18, -5e18, 5e18, True, 2.0],
                b=INTEGERS + FLOATS + [9.223372036854775807e18, -9.3e18, -5e18, 5e18, 4294967296.5, False, -1.0])
    yield from product("{a} {op} {b}", a=["1", "0", "1.5", "0.0"], op=["/", "//", "%"], b=["0", "0.0", "false"])
    yield from product("{a} ** {b}", a=["0", "1", "(-1)", "2", "(-2)", "3", "10", "0.5", "2.0", "(-2.0)", "0.0",
                                        "1e10"], b=["0", "1", "2", "3", "(-1)", "(-3)", "10", "0.5", "62", "(-0.5)",
                                                    "1000.0"])
    yield sweep("{{ a }} {{ -a }} {{ +a }} {{ [a] }} {{ a|tojson }} {{ a|abs }} {{ a|int if a < 1e18 }} "
                "{{ a|float }} {{ a|string }};",
                a=INTEGERS + FLOATS + [True, False])
    yield sweep("{{ a }} {{ -a }} {{ [a] }} {{ a|tojson }} {{ '{}'.format(a) }};", a=SHOWN)
    yield sweep("{{ a }} {{ a is integer }}{{ a is float }}{{ a|tojson }};", a=Raw("given"))
    yield from each(["0." + "1" * 40, "1" + "0" * 40 + ".0", "0." + "0" * 100 + "1"])
    yield sweep("{{ a|round }} {{ a|round(1) }} {{ a|round(2) }} {{ a|round(-1) }} {{ a|round(-2) }} "
                "{{ a|round(-3) }};",
                a=[0, 4, 5, 6, 15, 25, 35, -15, 49, 50, 51, 150, 250, 1250, 1500, 2500, -1500, 99999, True])
    yield sweep("{{ a|round }} {{ a|round(1) }} {{ a|round(2) }} {{ a|round(5) }} {{ a|round(-1) }} {{ a|round(-2) }};",
                a=[0.5, 1.5, 2.5, -0.5, -1.5, 0.05, 0.15, 0.25, 0.35, 2.675, 1.005, 2.345, 4.5, 5.5, 14.999, 15.0,
                   25.0, 1234.5678, -1234.5678, 1e15, 1e22, 99.995, 149.99999])
    yield sweep("{{ a|round(p, m) }} ", a=[2.5, -2.5, 2.51, -2.51, 0.0, 7, -7, 12345.678, 0.1], p=[0, 1, 2, 3, -1,
        -2], m=["ceil", "floor"])
    texts = ["0", "1", "-1", "+5", " 42 ", "\n7\t", "1_000", "_1", "1_", "1__0", "", " ", "+", "-", "--1", "1 2",
             "0x1f", "0X1F", "-0x1f", "0b101", "0o17", "017", "1f", "z", "Z", "zz", "1.5", "-1.5", "1e3", "1.9e1",
             ".5", "5.", "inf", "-inf", "Infinity", "nan", "1e400", "0.1_5", "1_0.5", "1._5", "a",
             "9223372036854775807", "-9223372036854775808", "1\u00a0", "\u00a01", "0" * 60 + "7", "1e",
             "e1", "0x1p3", "infi", "0x"]
    yield sweep("{{ [a, a|int, a|int(-7), a|float, a|float(-7), a|int(5, 10)] }};", a=[t for t in texts if finite(t)])
    yield sweep("{{ a|int(-7, b) }} ", a=[t for t in texts if finite(t) and "922337" not in t],
                b=[0, 2, 8, 10, 16, 36, 35])
    yield from product("{a}|{filter}", a=[lit(t) for t in texts if not finite(t)] + ["'5'", "[1]", "{}", "[]"],
                       filter=["int", "float", "int(3, 16)", "float(3)", "int(3, 1)", "int(3, 37)", "int(base=8)"])
    sizes = [0, 1, 2, 999, 1000, 1001, 1023, 1024, 1025, 999949, 999950, 999999, 1000000, 1048575, 1048576, 1500000,
             10**9, 2**30, 10**12, 10**15, 10**18, 0.5, 1.5, 999.9, -5, -5000, 1e21, 1e27, 1e30, 2.0**80,
             "1234", "1e6", True]
    yield sweep("{{ a|filesizeformat }}, {{ a|filesizeformat(true) }}; ", a=sizes)
    yield from each(["'x'|filesizeformat", "none|filesizeformat", "5000|filesizeformat(binary=true)",
                     "[]|filesizeformat"])


def finite(text):
    return not any(word in text.lower() for word in ("inf", "nan", "1e400"))


# --- strings

POINTS = [0, 1, 7, 8, 9, 10, 11, 12, 13, 14, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F, 0x20, 0x21, 0x22, 0x26, 0x27, 0x2F, 0x3C,
          0x5C, 0x7E, 0x7F, 0x80, 0x85, 0x9F, 0xA0, 0xA1, 0xAD, 0xFF, 0x100, 0x17F, 0x300, 0x378, 0x600, 0x61C, 0x7FF,
          0x800, 0x1680, 0x180E, 0x2000, 0x200A, 0x200B, 0x200D, 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000,
          0xD7FB, 0xE000, 0xF8FF, 0xFDD0, 0xFEFF, 0xFFFD, 0xFFFF, 0x10000, 0x1F600, 0x20000, 0xE0001, 0x10FFFD,
          0x10FFFF]


def strings():
    for code in POINTS:
        text = f"{lit('a' + chr(code) + 'b')}" if code else "'a\\0b'"
        yield (f"{{% set s = {text} %}}{{{{ [s] }}}}{{{{ s|tojson }}}}{{{{ s|tojson(ensure_ascii=true) }}}}"
               f"{{{{ s|length }}}}"
               "{{ (s[1] ~ s ~ s[1]).strip() == s }}{{ s.split() }}{{ s.splitlines() }}{{ s[1].isspace() }}"
               "{{ s|wordcount }}"
               "{{ s|urlencode }}{{ s|e }}{{ s|title }}{{ s.title() }}{{ {s: 1}|urlencode }}")
    follow = ["a", "b", "f", "n", "r", "t", "v", "\\", "'", '"', "0", "7", "8", "9", "x4", "x41", "xg1", "x4g", "u12",
              "u1234", "u00e9", "U0001F600", "U0010ffff", "U00110000", "ud7ff", "ue000", "N",
              "N{DASH}", "q", "\u00e9", "\u4e2d", "\U0001f600", "\u00ff", "\u0100", "101", "400", "777", "1234", "12",
              "18", "08", "\n", "A", "(", "/", "`", "u", "x", "U0001F60", "c", "e"]
    yield from ("{{ ['a\\" + text + "b'] }}" for text in follow)
    yield from ('{{ ["a\\' + text + 'b"] }}' for text in follow[:14])
    yield from ["{{ 'a\r\nb'|length }}", "{{ 'a\rb\r\rc\n\rd'|tojson }}"]
    yield sweep("{{ [a] }}{{ {a: a} }}{{ (a,) }}{{ a|tojson }}", a=["", "'", '"', "'\"", "a\\'", "\\", "\\n", "\n'",
                                                                    '\u200b"'])
    texts = ["", "a", "A", "1", "\u01c5", "\u00b2", "\u00bd", "\u2167", "\u0663", " ", "\u00a0", "\x1c",
             "\x85", "_", "a1", "a b", "\u00aa", "\u02b0", "\u0345", "\u2460", "\u2028", "\u00e9", "\u00df", "\x7f",
             "-", "ab", "Ab", "aB", "AB", "A1", "a_", "1a\u00e9", "\u00c9", "\t\n", " a", "\u2160", "\u24b6", "12",
             "1.5", "\u0661\u0662", "\u00bc1", "\u3007"]
    yield sweep("{{ a.isalpha() }}{{ a.isdecimal() }}{{ a.isdigit() }}{{ a.isnumeric() }}{{ a.isalnum() }}"
                "{{ a.isspace() }}"
                "{{ a.isascii() }}{{ a.islower() }}{{ a.isupper() }}{{ a is lower }}{{ a is upper }} ", a=texts)


ASCII = "".join(map(chr, range(32, 127)))


def characters():
    """Every character with a case of its own, and every digit that is not decimal, with its neighbours."""
    codes = [c for c in range(0x80, 0x11000) if not 0xD800 <= c < 0xE000]
    cased = [c for c in codes if len(chr(c).upper()) > 1 or chr(c).title() != chr(c).upper() or len(chr(c).lower()) > 1]
    digits = {c for c in codes + list(range(0x1F0F0, 0x1F110)) if chr(c).isdigit() and not chr(c).isdecimal()}
    near = sorted({n for c in digits for n in (c - 1, c, c + 1)} | {0x30, 0x39, 0x3A, 0x2F, 0x660, 0x669})
    plain = [c for r in ((0xA0, 0x250), (0x370, 0x378), (0x386, 0x400), (0x400, 0x530), (0x531, 0x557), (0x561,
        0x588), (0x1E00, 0x1F00), (0x2160, 0x2180), (0x24B6, 0x24EA), (0xFF21, 0xFF5B)) for c in range(*r)]
    for name in ("upper", "lower", "title", "capitalize", "swapcase", "casefold"):
        for chunk in (cased, plain):
            yield f"{{% for c in {lit(''.join(map(chr, chunk)))} %}}{{{{ c.{name}() }}}},{{% endfor %}}"
    yield f"{{{{ {lit(''.join(map(chr, plain)))}.swapcase() }}}}{{{{ {lit(''.join(map(chr, plain)))}.title() }}}}"
    yield (f"{{% for c in {lit(''.join(map(chr, near)))} %}}{{{{ c.isdigit()|int }}}},"
           f"{{{{ c.isnumeric()|int }}}};{{% endfor %}}")
    yield (f"{{% for c in {lit(ASCII)} %}}{{{{ ('ab' ~ c ~ 'cd')|title }}}}"
           f"{{{{ ('ab' ~ c ~ 'cd').title() }}}}{{% endfor %}}")
    yield (f"{{% for c in {lit(ASCII)} %}}{{{{ c|urlencode }}}}{{{{ {{c: c}}|urlencode }}}}{{{{ c|e }}}}"
           f"{{{{ c|tojson }}}}"
           "{{ ('a' ~ c ~ 'b')|wordcount }}{% endfor %}")
    sigma = ["\u03a3", "A\u03a3", "\u03a3A", "A\u03a3A", "A\u03a3.", "A.\u03a3", "A\u03a3.B", "A'\u03a3", ".\u03a3",
             "A\u0301\u03a3", "A\u03a3\u0301", "A\u03a3\u0301B", "1\u03a3", "A\u03a31", "A\u00ad\u03a3",
             "A\u2019\u03a3", "A\u2019\u03a3\u2019B", "\u01c5\u03a3", "\u03a3\u03a3", "A\u03a3\u03a3",
             "A\u03a3 \u03a3", "A:\u03a3:", "A\u00b7\u03a3", "A^\u03a3", "A_\u03a3", "A-\u03a3", "\u02b0\u03a3",
             "A\u03a3\u02b0", "A\u0387\u03a3\u2024", "A\uff0e\u03a3", "A\u05f4\u03a3", "A\u2027\u03a3"]
    yield sweep("{{ a.lower() }} {{ a.title() }} {{ a.capitalize() }} {{ a|title }} {{ a|lower }};", a=sigma)
    for n in (495, 496, 497, 498, 511, 512, 513):
        yield f"{{{{ ('a' * {n} ~ '\u00df\u0390\u00df')|upper }}}}{{{{ ('\u0390' * {n})|upper|length }}}}"


def slices():
    bounds = [None, 0, 1, 3, 4, 5, 6, 99, -1, -4, -5, -6, -99, 9223372036854775807, -9223372036854775807]
    steps = [None, 1, 2, 5, 99, -1, -2, -5, -99, 9223372036854775807]
    for owner in ("'abcde'", "'a\u00e9\u4e2d\U0001f600e'", "'x'", "''"):
        yield sweep("{{ o[a:b:c] }},", o=[Raw(owner)], a=bounds, b=bounds, c=steps)
    for owner in ("[1, 2, 3, 4, 5]", "(1, 2, 3, 4, 5)", "[]", "range(5)|list"):
        yield sweep("{{ o[a:b:c]|join }},", o=[Raw(owner)], a=bounds, b=bounds, c=steps)
    small = [None, 0, 1, 3, 5, 9, -1, -5, -9]
    for owner in ("range(5)", "range(3, 20, 4)", "range(9, -4, -3)", "range(0)"):
        yield sweep("{{ o[a:b:c] }}{{ o[a:b:c]|list }},", o=[Raw(owner)], a=small, b=small, c=[None, 2, 9, -1, -2])
    yield sweep("{{ o[i] }},", o=[Raw("'abcde'"), Raw("'a\u00e9\u4e2d'"), Raw("[1, 2, 3]"), Raw("(1,)"),
                                  Raw("range(3, 9, 2)"), ""], i=[0, 1, 2, 3, 4, 5, -1, -2, -3, -4, -5, -6, True,
                                                                 9223372036854775807, -9223372036854775807])


def searches():
    ends = [None, 0, 1, 3, 5, 6, 9, -1, -2, -5, -6]
    for text in ("ababa", "\u00e9a\u00e9a\u00e9", ""):
        needles = list(dict.fromkeys(["", text[:1], text[1:2], text[:3], text, text + "a", "z", text[-2:]]))
        yield sweep("{{ t.find(n, i, j) }} {{ t.rfind(n, i, j) }} {{ t.count(n, i, j) }} "
                    "{{ t.startswith(n, i, j)|int }} "
                    "{{ t.endswith(n, i, j)|int }};", t=[text], n=needles, i=ends, j=ends)
        yield sweep("{{ t.find(n) }} {{ t.rfind(n) }} {{ t.count(n) }} {{ t.startswith(n) }}"
                    "{{ t.endswith(n) }}{{ n in t }}"
                    "{{ t.find(n, 2) }} {{ t.removeprefix(n) }} {{ t.removesuffix(n) }} ", t=[text], n=needles)
        yield sweep("{{ t.replace(n, m, c) }},{{ t.replace(n, m) }},{{ t|replace(n, m) }},{{ t|replace(n, m, c) }};",
                    t=[text], n=needles, m=["", "X", "aba"], c=[-1, 0, 1, 2, 3, 9])
        yield sweep("{{ t.partition(n) }}{{ t.rpartition(n) }}{{ t.split(n) }}{{ t.rsplit(n) }};", t=[text],
                    n=[text[:2] or "q", "z", "a"])
    yield from product("s.{name}({args})", name=["find", "rfind", "index", "rindex", "count", "startswith",
                                                 "endswith"], args=["", "1", "none", "x", "'o', 'a'", "'o', 0, 99",
                                                                    "'o', 0, 5, 7", "'o', -3", "'zz'", "'l', 3, 4",
                                                                    "sub='o'", "('o', 'H')", "'o', 5, 4", "'', 11",
                                                                    "'', 12", "['H']", "'d', none, none", "'o', 1.5",
                                                                    "'World', 6", "''"])


def splits():
    texts = ["", " ", "a", " a ", "a b", "  a  b c ", "a,b", ",a,,b,", "aaa", "aaaa", "\u00e9\u2003\u4e2d\n\tx",
             "a\x1cb"]
    most = [-1, 0, 1, 2, 3, 9]
    yield sweep("{{ t.split(p, m) }}{{ t.rsplit(p, m) }};", t=texts, p=[None, ",", "a", "aa", " ", "\u4e2d"], m=most)
    yield sweep("{{ t.split() }}{{ t.rsplit() }}{{ t.split(',') }}{{ t.rsplit('a') }};", t=texts)
    ends = ["\n", "\r", "\r\n", "\n\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029",
            "\t", "\n\n", ""]
    yield sweep("{{ (e ~ 'a' ~ e ~ 'b' ~ e).splitlines(k) }}{{ ('a' ~ e).splitlines() }}"
                "{{ e.splitlines(keepends=k) }};",
                e=ends, k=[False, True])
    sides = ["", " ", "a", " a ", "\t\na\u2003", "ab", "abba", "bab", "aaa", "xay", "\u00e9a\u00e9", "\x1ca\x1f",
             "\u200ba\u200b", "\x85a\xa0"]
    yield sweep("{{ [t.strip(c), t.lstrip(c), t.rstrip(c), t|trim(c)] }};", t=sides, c=[None, "", "a", "ab", "b ",
        "\u00e9", "\u00e9a"])
    yield sweep("{{ [t.strip(), t.lstrip(), t.rstrip(), t|trim] }};", t=sides)
    for n in (1, 63, 64, 65, 127, 128, 129, 200):
        yield (f"{{% set w = ' ' * {n} ~ 'b' ~ ' ' * {n} %}}{{{{ w.strip() }}}}{{{{ w.lstrip()|length }}}}"
               f"{{{{ w.rstrip()|length }}}}"
               f"{{{{ ('xy' * {n} ~ 'b' ~ 'x' * {n}).strip('yx') }}}}{{{{ (' ' * {n}).strip()|length }}}}"
               f"{{{{ w|trim }}}}")


def padding():
    texts = ["", "a", "ab", "abc", "abcd", "\u00e9\u4e2d", "+5", "-", "-12", "+"]
    widths = list(range(-1, 10))
    yield sweep("{{ [t.center(w), t.ljust(w), t.rjust(w), t.zfill(w), t|center(w)] }}", t=texts, w=widths)
    yield sweep("{{ [t.center(w, f), t.ljust(w, f), t.rjust(w, f)] }}", t=texts[:4], w=widths[::2], f=["*", "\u4e2d"])
    tabs = ["\t", "a\t", "ab\tc\td", "\ta\n\tb", "a\r\tb", "abcdefgh\ti", "abcdefg\th", "\u4e2d\te", "a\t\tb", "", "a"]
    yield sweep("{{ [t.expandtabs(w)] }}", t=tabs, w=[-1, 0, 1, 2, 4, 7, 8, 9])
    yield sweep("{{ [t.expandtabs()] }}{{ [t.expandtabs(tabsize=3)] }}", t=tabs)
    lines = ["", "a", "a\nb", "a\n\nb", "\na", "a\n", "a\n\n", "\n", " \n b", "a\r\nb", "a\x0bb\u2028c"]
    yield sweep("{{ [t|indent(w, f, b)] }}", t=lines, w=[0, 1, 4, "> ", "", "\t"], f=[False, True], b=[False, True])
    yield sweep("{{ [t|indent, t|indent(2), t|indent(first=true), t|indent(blank=true), t|indent(width=1)] }}", t=lines)
    words = ["foo bar baz qux", "foobar", "a b", "foo  bar", "\u00e9\u4e2d \u00e9\u4e2d\u00e9", " lead", "trail "]
    yield sweep("{{ [t|truncate(n, k, '..', w)] }}", t=words, n=[2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 15], k=[False, True],
                w=[0, 1, 5])
    yield sweep("{{ [t|truncate(n), t|truncate(n, true), t|truncate(n, end='', leeway=0)] }}"
                "{{ t|truncate(n, leeway=none) }}",
                t=words, n=[3, 4, 5, 6, 9, 10, 11, 255])
    yield sweep("{{ ('ab ' * n)|truncate|length }} ", n=list(range(80, 92)))
    counted = ["", " ", "a", "a b", "a-b", "a_b", "it's", "\u00e9 \u4e2d", "1 2.5", "--", "a\u0301b", "\u00b2 x",
               "  a  "]
    yield sweep("{{ t|wordcount }} {{ t|title }} {{ t.title() }} {{ t|capitalize }} {{ t.capitalize() }} "
                "{{ t.swapcase() }};",
                t=counted)


# --- formats


def fits(value, spec):
    try:
        return format(value, spec) is not None
    except (ValueError, TypeError, OverflowError):
        return False


def format_specs(rng, value, parts):
    """Specifications that Python takes for the value, in one template; some that it refuses, each in its own."""
    specs = ["".join(choice) for choice in itertools.product(*parts)]
    good = [spec for spec in specs if fits(value, spec)]
    bad = [spec for spec in specs if not fits(value, spec)]
    for spec in rng.sample(bad, min(len(bad), 4)):
        yield "{{ " + lit("{:" + spec + "}") + ".format(" + lit(value) + ") }}"
    chosen = rng.sample(good, min(len(good), 60))
    yield "{{ " + lit("|".join("{0:" + spec + "}" for spec in chosen)) + ".format(" + lit(value) + ") }}"


def formats():
    rng = random.Random(1)
    aligns = ["", "<", ">", "^", "=", "*<", "0>", "\u00e9^", "x=", "<<", "+^"]
    for value in (0, 1, -1, 42, -1234, 1234567, 255, 9223372036854775807, True):
        yield from format_specs(rng, value, [aligns, ["", "+", "-", " "], ["", "#"], ["", "0"], ["", "1", "5", "6",
            "12"], ["", ",", "_"], ["", "d", "x", "X", "o", "b", "n", "c", "e", "f", "g", "%", "s"]])
        yield from format_specs(rng, value, [["", "*^", "="], ["", "+"], ["", "0"], ["", "9"], ["", ",", "_"], [".0",
            ".1", ".3"], ["", "e", "f", "g", "%", "E", "G", "F", "d"]])
    for value in (0.0, -0.0, 1.0, -1.5, 0.1, 1234567.891, 1e-5, 1e16, 0.5, 2.5, 99.995, 1e100, 123456.0, 9.9999):
        yield from format_specs(rng, value, [aligns, ["", "+", " "], ["", "#"], ["", "0"], ["", "1", "9", "14"], ["",
            ",", "_"], ["", ".0", ".1", ".2", ".3", ".6", ".10"], ["", "e", "f", "g", "%", "E", "G", "F", "n", "d",
                                                                   "s"]])
    for value in ("", "a", "abcdef", "\u00e9\u4e2d\U0001f600", "it's"):
        yield from format_specs(rng, value, [aligns, ["", "+"], ["", "0"], ["", "1", "3", "7"], ["", ".0", ".1", ".3",
            ".9"], ["", "s", "d"]])
    yield sweep("{{ ('%' ~ f ~ w ~ p ~ t) % v }}|", v=[0, -42, 123456, 2.5, -0.001], f=["", "-", "+", " ", "0", "#",
        "-0", "+0", " +", "#0"], w=["", "1", "8"], p=["", ".", ".0", ".3"], t=["d", "e", "f", "g", "G", "i"])
    yield sweep("{{ ('%' ~ f ~ w ~ p ~ t) % v }}|", v=[0, 1, -42, 123456, 255], f=["", "-", "+", "0", "#", "#0",
        "-#"], w=["", "1", "8"], p=["", ".", ".3"], t=["x", "X", "o"])
    yield sweep("{{ ('%' ~ f ~ w ~ p ~ t) % (v,) }}|", v=["", "a", "abcdef", "\u00e9\u4e2d", None, 5, 2.5, [1, "a"],
                                                          {"a": 1}], f=["", "-", "0", "+"], w=["", "1", "5", "9"],
                p=["", ".0", ".1", ".3", ".99"], t=["s", "r"])


# --- filters over elements

PEOPLE = [{"n": "bo", "a": 3}, {"n": "Al", "a": 1}, {"n": "al", "a": 3}, {"n": "Cy", "a": 2}, {"n": "BO", "a": 1}]


def elements():
    people = f"{{% set p = {lit(PEOPLE)} %}}"
    for args in ("", "(true)", "(reverse=true)", "(case_sensitive=true)", "(true, true)", "(attribute='n')",
                 "(attribute='a')", "(true, false, 'a')", "(attribute='a,n')", "(attribute='n,a', reverse=true)",
                 "(case_sensitive=true, attribute='n')", "(attribute='zz')", "(attribute=0)"):
        yield people + "{{ p|sort" + args + "|map('tojson')|join }}"
        yield "{{ ['b', 'A', 'c', 'B', 'a', 'C', 'b']|sort" + args + " }}"
        yield "{{ [[2, 'b'], [1, 'z'], [2, 'a'], [1, 'Z'], [0, 'b']]|sort" + args + " }}"
    yield sweep("{{ l|sort }}{{ l|sort(reverse=true) }}{{ l|unique|list }}{{ l|min }}{{ l|max }}{{ l|sum }}"
                "{{ l|reverse|list }}{{ l|first }}{{ l|last }}"
                "{{ l|length }}{{ l|list }};", l=[[1], [2, 1], [1, 2], [1, 1], [3, 1, 2], [3, 2, 1, 2], [1, 2.5, True,
        0], [5, 4, 3, 2, 1, 0], [1, 1.0, True], [0, False, 0.0], list(range(17, 0, -1)), [2, 1, 2, 1, 2, 1, 2]])
    for args in ("attribute='n'", "attribute='a'", "'n'", "'a', 9", "attribute='zz', default='-'",
                 "'n', case_sensitive=true", "'zz'", "'n', none, true", "0"):
        yield people + "{{ p|groupby(" + args + ") }}"
        yield (people + "{% for g in p|groupby(" + args + ") %}{{ g.grouper }}:{{ g.list|length }}{{ g[0] }}"
               "{{ g[1]|map(attribute='n')|join }};{% endfor %}")
    for name in ("min", "max", "unique"):
        for args in ("", "(true)", "(attribute='n')", "(false, 'n')", "(true, 'n')", "(attribute='a')",
                     "(case_sensitive=true, attribute='a')", "(attribute='zz')"):
            yield people + "{{ p|" + name + args + ("|map('tojson')|join" if name == "unique" else "|tojson") + " }}"
            yield "{{ ['b', 'a', 'B', 'A', 'b']|" + name + args + ("|list" if name == "unique" else "") + " }}"
    yield from product("{v}|{f}", v=["[]", "''", "{}", "()", "x", "[[]]", "[1, 'a']", "['a', 1]", "[none, 1]", "[x]",
                                     "[1, x]", "'hello'", "{'b': 1, 'a': 2}", "(2, 1)", "range(4)", "d.items()",
                                     "d.keys()", "5", "none", "[[1, 2], [0, 5]]", "[{'a': 1}]", "['', 'a']",
                                     "[0.5, -1, 2]", "l|map('abs')"], f=["sort", "min", "max", "sum", "unique|list",
        "first", "last", "list", "reverse|list", "join", "join('-')", "length", "batch(2)|list", "slice(2)|list",
        "map('string')|list", "select|list", "reject|list", "groupby(0)", "count", "sum(start=10)", "unique|first",
        "items|list"])
    yield sweep("{{ l|batch(n)|list }}{{ l|batch(n, '-')|list }}{{ l|slice(n)|list }}"
                "{{ l|slice(n, '-')|list }}{{ l|batch(n, none)|list }};",
                l=[[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7]], n=[1, 2, 3, 4, 5, 8])
    for args in ("", "(true)", "(false, 'key')", "(false, 'value')", "(by='value', reverse=true)", "(reverse=true)",
                 "(case_sensitive=true)", "(true, 'value')", "(by='nosuch')", "(by=1)"):
        yield "{{ {'b': 'x', 'A': 'Y', 'a': 'y', 'C': 'X', 'B': 'z'}|dictsort" + args + " }}"
        yield "{{ {2: 'b', 1: 'c', 3: 'a'}|dictsort" + args + " }}"


VALUES = ["nosuch", "none", "true", "5", "2.5", "'aB'", "('<'|safe)", "[2, 'a']", "(1,)", "{'k': 1}",
          "{'k': 1}.values()", "range(2)", "([3]|map('abs'))", "namespace(a=1)", "''", "range", "'a'.upper"]


def types():
    filters = ["abs", "capitalize", "center(3)", "count", "d(1)", "dictsort", "e", "escape", "filesizeformat",
               "first", "float", "forceescape", "indent", "int", "items|list", "join", "last", "length", "list",
               "lower", "map('string')|list", "max", "min", "replace('a', 'b')", "reverse|list", "round", "safe",
               "select|list", "sort", "string", "sum", "title", "tojson", "trim", "truncate", "unique|list", "upper",
               "urlencode", "batch(1)|list", "attr('x')", "first|first"]
    yield from product("{v}|{f}", v=VALUES, f=filters)
    yield from product("{v}|wordcount", v=["nosuch", "none", "5", "('<'|safe)", "[2, 'a']", "{'k': 1}", "''"])
    tests = ["boolean", "callable", "defined", "escaped", "false", "float", "integer", "iterable", "lower", "mapping",
             "none", "number", "sameas none", "sequence", "string", "true", "undefined", "upper", "eq 5", "ne 5",
             "in [5, none, 'aB']", "sameas true", "sameas 5", "eq [2, 'a']", "eq (1,)", "eq {'k': 1}", "eq range(2)"]
    for value in VALUES:
        yield "{{ [" + ", ".join(f"{value} is {test}" for test in tests) + "] }}"
        yield f"{{{{ [1 if {value} else 0, not {value}, {value} == {value}, [{value}] == [{value}], {value} or 1] }}}}"
        yield f"{{{{ [{value}, {{'a': {value}}}] }}}}{{{{ {value} }}}}{{{{ {value} ~ '' }}}}{{{{ {value}|string }}}}"
        yield from each(f"{value}{use}" for use in (".x", "['x']", "[0]", "[-1]", "[9]", "()", "(1)",
                                                    "['upper']()", ".x.y", "[0].x", "[none]", "[1.5]", "[(1, 2)]",
                                                    ".k", ".items()|list", "[[1]]"))
        yield from each(f"{op}{value}" for op in ("-", "+"))
        yield "{% for i in " + value + " %}{{ i }}{% else %}-{% endfor %}"
        yield from each([f"1 is in {value}", f"'a' in {value}", f"none not in {value}", f"{value} in [{value}]",
                         f"{{{value}: 1}}[{value}]", f"'%s' % {value}", f"'%d' % {value}", f"{value} is even",
                         f"{value} is odd", f"{value} is divisibleby 5", f"10 is divisibleby {value}"])
    kinds = ["nosuch", "none", "true", "2", "2.5", "'a'", "('<'|safe)", "[1]", "(1,)", "{'k': 1}", "range(2)", "''"]
    for op in ("+", "-", "*", "<"):
        yield from product("{a} " + op + " {b}", a=kinds, b=kinds)
    for op in ("/", "//", "%", "**"):
        yield from product("{a} " + op + " {b}", a=kinds[:-1], b=["2", "true", "none", "nosuch", "'a'"])
    yield "{{ [" + ", ".join(f"{a} == {b}, {a} != {b}" for a in kinds for b in kinds) + "] }}"
    yield "{{ [" + ", ".join(f"{a} ~ {b}" for a in kinds for b in kinds) + "] }}"
    yield "{{ [" + ", ".join(f"{a} is sameas {b}" for a in kinds[1:4] for b in kinds[1:6]) + "] }}"
    yield sweep("{{ [a < b, a <= b, a > b, a >= b, a == b]|map('int')|join }} ", a=["", "a", "A", "ab", "b", "\u00e9",
        "\uffff", "\U0001f600", "a\u0301"], b=["", "a", "A", "ab", "b", "\u00e9", "\uffff", "\U0001f600"])
    yield sweep("{{ [a < b, a <= b, a > b, a >= b, a == b]|map('int')|join }} ", a=[[], [1], [1, 2], [2], [1, 1],
        [[1], 2]][:5], b=[[], [1], [1, 2], [2], [1, 1, 1], [1.0]])


def tojson():
    values = ["none", "true", "1", "1.5", "1e20", "'a'", "[]", "{}", "()", "[1]", "[1, [2, []], {}]", "{'a': 1}",
              "{'b': [1, {'c': {}}], 'a': (1, 2)}", "{1: 2, 'a': none}", "'<\u00e9\\u2028\\U0001f600&>'", "d",
              "{'\u00e9': '\u00e9'}", "{true: 1, none: 2, 1.5: 3}", "{2: 1, 10: 2, 1: 3}",
              "{'b': 1, 'B': 2, 'a': 3, '': 4}"]
    args = ["", "(true)", "(indent=0)", "(indent=1)", "(indent=4)", "(indent=-1)", "(indent='')", "(indent='--')",
            "(indent=none)", "(separators=(',', ':'))", "(separators=['; ', '= '])",
            "(indent=2, separators=(',', ':'))", "(sort_keys=true)", "(sort_keys=true, indent=1)",
            "(ensure_ascii=true, indent=2)", "(false, 2, none, true)"]
    yield from product("{v}|tojson{a}", v=values, a=args)
    yield "{% set x = {'b': 2, 'a': 1} %}{{ x|tojson(sort_keys=true) }}{{ x|tojson }}{{ x }}"


# --- dicts, names, calls


def dicts():
    for n in (0, 1, 4, 5, 11, 12, 13, 14, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 200):
        built = "{" + ", ".join(f"'k{i}': {i}" for i in range(n)) + "}"
        yield (f"{{% set d = {built} %}}"
               f"{{{{ d|length }}}}{{% for k in d %}}{{% if d[k] != loop.index0 or d.get(k) != d[k] or k not in d %}}"
               "!{{ k }}{% endif %}{% endfor %}"
               f"{{{{ d == dict(d|items|list|reverse) }}}}{{{{ d.get('k{n}') }}}}{{{{ 'k{n}' in d }}}}"
               f"{{{{ d.k0 }}}}{{{{ d.copy()|length }}}}{{{{ dict(d, k0=-1, z=1)|length }}}}"
               f"{{{{ dict(d, k0=-1).k0 }}}}{{{{ dict(d, k{n - 1}='x')|last }}}}{{{{ d|last }}}}"
               f"{{{{ d == dict(d, z=1) }}}}{{{{ '%(k0)s' % dict(d, k0=7) }}}}")
        yield (f"{{% set ns = namespace() %}}{{% for i in range({n}) %}}{{% set ns.a = i %}}{{% endfor %}}"
               f"{{% set p = namespace(l=[]) %}}{{% for i in range({n}) %}}"
               "{% set p.l = p.l + [(i, -i)] %}{% endfor %}{% set q = dict(p.l) %}{{ q|length }}{{ ns.a }}"
               "{% for i in q %}{{ q[i] }}{{ q[i + 0.0] }}{% endfor %}{{ q[-1] is defined }}")
    names = " ".join(f"{{% set v{i} = {i} %}}" for i in range(140))
    yield names + "".join(f"{{{{ v{i} }}}}," for i in range(0, 140)) + "{{ v140 }}"
    yield ("{% for i in [1] %}" + names + "{{ v0 }}{{ v1 }}{{ v4 }}{{ v5 }}{{ v139 }}{% set v3 = 'x' %}{{ v3 }}"
           "{{ v4 }}{% endfor %}{{ v3 }}")


# --- white space


def whitespace():
    """Tags with each sign, between pieces of white space: a sample of all combinations."""
    rng = random.Random(2)
    around = ["", "x", " ", "\n", " \n ", "x \n  ", "\n\n", "\t", "  x  ", "\n x", "x\n", "\r\n", " \r ", "\u00a0",
              "x\u2003", "\x1f\n", "\n\x0b "]
    tags = ["{{%{0} if 1 {1}%}}{m}{{%{2} endif {3}%}}", "{{{{{0} 1 {1}}}}}{m}{{{{{2} 2 {3}}}}}",
            "{{#{0} c {1}#}}{m}{{#{2} d {3}#}}", "{{%{0} raw {1}%}}{m}{{%{2} endraw {3}%}}",
            "{{%{0} set a = 1 {1}%}}{m}{{{{{2} a {3}}}}}", "{{%{0} set a {1}%}}{m}{{%{2} endset {3}%}}[{{{{ a }}}}]",
            "{{#{0} c {1}#}}{m}{{%{2} print 1 {3}%}}", "{{{{{0} 1 {1}}}}}{m}{{%{2} print 2 {3}%}}"]
    for tag in tags:
        for signs in itertools.product(("", "-", "+"), repeat=4):
            before, middle, behind = rng.choice(around), rng.choice(around), rng.choice(around)
            yield before + tag.format(*signs, m=middle) + behind
    yield from ["{{\u00a01\u00a0}}", "{{\x0c1\x0b}}", "{{\x1c1\x85}}", "{%\x1fif\t1\x0c%}x{%\u2003endif %}"]
    for text in ("", "\n", "\n\n", "a\n", "a\n\n", "a\r\n", "a\r", "\r\n\r\n", " ", "a \n ", "{{ 1 }}\n",
                 "{% if 1 %}{% endif %}\n", "{# c #}\n", "{{ 1 }}\n\n", "a\rb\r\nc\n\rd", "\ufeffa"):
        yield text


# --- expressions by chance


def expressions():
    """Operators without parentheses, which precedence alone keeps apart."""
    rng = random.Random(3)
    atoms = ["1", "2", "3", "7", "-2", "true", "false", "0", "n", "(1 + 2)", "2.5", "l[0]", "s|length", "'ab'|length",
             "-n", "n|abs", "4 // 3", "x|length"]
    operators = ["+", "-", "*", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "if", "in", "is",
                 "not in", "and not", "or not"]

    def expression(length):
        text = ("not " if rng.random() < 0.1 else "") + rng.choice(atoms)
        for _ in range(length):
            operator = rng.choice(operators)
            if operator == "if":
                text += f" if {rng.choice(atoms)} else {rng.choice(atoms)}"
            elif operator in ("in", "not in"):
                text += f" {operator} [{rng.choice(atoms)}, {rng.choice(atoms)}]"
            elif operator == "is":
                text += rng.choice([" is odd", " is not even", " is number", " is eq 3", " is divisibleby 2",
                                    " is in [1, 3]"])
            elif operator == "**":
                text += f" ** {rng.choice(['2', '0', '1', '-1'])}"
            else:
                text += f" {operator} {rng.choice(atoms)}"
        return text

    for i in range(400):
        yield "{{ " + expression(2 + i % 5) + " }}"


def templates():
    for make in (numbers, strings, characters, slices, searches, splits, padding, formats, elements, types, tojson,
                 dicts, whitespace, expressions):
        yield from make()
