#!/usr/bin/env python3
"""make_template_cases.py - what jinja2 makes of templates: one JSON object a line for test_template.c.

usage: make_template_cases.py > test/data/templates/cases.jsonl

Each line has a template and what it gives with VARIABLES (the first line): `rendered`, or the `error` that
raise_exception() raises, or `fails` with Python's exception where anything else goes wrong. The reference is jinja2 3.1.6
as transformers 5.23 sets it up, which is taken from transformers itself; strftime_now() is of 26 July 2024. What jinja2
does in its own way and auk refuses by name (integers beyond 64 bits, tags that read other templates) is not among the
cases, nor what Python prints with an address."""

import datetime
import json

import jinja2
import transformers.utils.chat_template_utils as chat_template_utils

VARIABLES = {
    "messages": [
        {"role": "user", "content": "Hi <b>"},
        {"role": "assistant", "content": "Yo é中ß"},
        {"role": "tool", "content": None, "n": 3},
    ],
    "n": 5,
    "f": 2.5,
    "s": "Hello World",
    "l": [3, 1, 2],
    "d": {"b": 1, "a": [1, {"x": None}], "items": 7},
    "none": None,
    "t": True,
    "e": "",
    "u": "straße ǆ ﬁ ΣΑΣ İ",
    "huge": 18446744073709551615,
}

# Each is the inside of a {{ }}; ⏎ stands for a newline.
EXPRESSIONS = r"""
1+2*3
7//2
-7//2
-7 % 3
7.5 % 2
2**3**2
-2**2
2**-1
0**-1
1/0
1//0
1%0
1.5//0
9223372036854775807
1/3
1e16
1e15
123456789.123456789
1e-5
0.0001
1.0
100000000000000000000.0
1e22
1.5e300*1e10
1_000
0x1F + 0b11 + 0o17
1 < 2 < 3
1 < 2 > 3
1 == 1.0
True == 1
'a' < 'b'
'a' < 1
[1,2] < [1,3]
[1] == (1,)
{'a':1} == {'a':1.0}
not 1 == 2
not x
x
x.y
x[0]
x.y.z
d.zzz
d.zzz.y
d['zzz']
messages[7]
messages[7].x
messages[-1].n
l[5]
s[100]
s[0]
s[-1]
s[1:4]
s[::-1]
s[-3:]
s[:-3]
s[::2]
s[10:2:-2]
u[1:4]
u[::-1]
l[1:]
l[::-1]
l[:100]
l[-100:2]
messages[1:]|length
(1,2,3)[1:]
range(10)[2:5]
range(5)
range(0)
range(1,10,3)|list
range(10,0,-3)|list
range(100001)
range(100000)|length
range(0,10,0)
'a' 'b'
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1,'x']
'a' + 1
1 + 'a'
[1] + [2]
[1] + (2,)
'ab' * 3
3 * 'ab'
[0] * 3
'a' in 'abc'
1 in 'abc'
'x' in d
'b' in d
3 in l
3 not in l
'a' in x
none in [none]
1 in none
d.items()
d.keys()
d.values()|list
d.get('b')
d.get('q')
d.get('q', 5)
d['items']
d|items|list
d|length
d
l
messages
(1,)
(1,2)
()
{}
[]
{'a': 1, 'b': [1,2]}
{1: 2, 1.0: 3, True: 4}
{[1]: 2}
{'a':1}['a']
"it's"
["it's", 'say "x"', 'both \'"', 'tab\t', '\n', 'é', '\x7f', '\u200b', '\\']
'\x41\u00e9\U0001F600'
'\N{DASH}'
'a\qb'
'\101'
'a⏎b'
'"'
"\"'"
none
None
true
false
True
s.upper()
s.lower()
s.title()
s|title
s.capitalize()
s.swapcase()
u.upper()
u.lower()
u.title()
u.capitalize()
u|capitalize
u|title
u.swapcase()
'hello-world (foo) bar[x] <y> it\'s'|title
'hello-world (foo) bar[x] <y> it\'s'.title()
s.split()
s.split('o')
s.split('o', 1)
s.rsplit('o', 1)
s.split(maxsplit=0)
'  a  b  '.split()
'  a  b  '.split(none, 1)
'  a  b  '.rsplit(none, 1)
'a,b,,c'.split(',')
''.split(',')
''.split()
s.split('')
'a\nb\r\nc\n'.splitlines()
'a\nb\r\nc\n'.splitlines(true)
'  x '.strip()
'  x '.lstrip()
'  x '.rstrip()
'xxaxx'.strip('x')
'xyaxy'.strip('yx')
'xxaxx'.lstrip('x')
'abc'.strip(1)
s.startswith('Hell')
s.startswith(('x','H'))
s.endswith('ld')
s.startswith('llo', 2)
s.startswith('W', -5)
s.endswith('lo', 0, 5)
s.startswith(1)
s.find('o')
s.find('o', 5)
s.rfind('o')
s.find('zz')
s.index('zz')
s.index('W')
s.count('o')
s.count('')
'aaa'.count('aa')
s.replace('o', '0')
s.replace('o', '0', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
'-'.join(['a','b'])
'-'.join('abc')
'-'.join([1])
'-'.join(5)
'abc'.isdigit()
'123'.isdigit()
'²'.isdigit()
'²'.isdecimal()
''.isdigit()
'abc'.isalpha()
'aBc'.islower()
'abc1'.islower()
'ABC'.isupper()
' \n'.isspace()
'a1'.isalnum()
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'42'.zfill(5)
'-42'.zfill(5)
'a'.center(6)
'ab'.center(5, '*')
'abc'.center(6,'*')
'ab'.center(7,'*')
'a'.ljust(4) ~ '|'
'a'.rjust(4, '.')
'a'.rjust(4, '..')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'abc'.rpartition('=')
'a\tb'.expandtabs(4)
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format(1, 'a')
'{a} {b.x}'.format(a=1, b={'x':2})
'{a[x]}'.format(a={'x':2})
'{:>5}|{:<5}|{:^5}'.format('a','b','c')
'{:05d} {:+d} {:,} {:x} {:#x} {:b} {:o}'.format(42, 42, 1234567, 255, 255, 5, 8)
'{:.2f} {:e} {:g} {:%}'.format(3.14159, 12345.678, 0.00001, 0.25)
'{:.3} {:10.3f}|'.format(3.14159, 2.5)
'{!r} {!s}'.format('a', 'a')
'{'.format(1)
'}'.format(1)
'{} {0}'.format(1)
'{2}'.format(1)
'{x}'.format(1)
'{:{w}}|'.format('a', w=4)
'{:d}'.format('a')
'{:s}'.format(1)
'{:.3}'.format('abcdef')
'{:5}|'.format(1)
'{:5}|'.format('a')
'{:5}|'.format(true)
'{}'.format(true)
'{}'.format(none)
'{:5}'.format(none)
'{}'.format([1,2])
'{:*^9}'.format('mid')
'{:08.3f}'.format(-3.14159)
'{:,.2f}'.format(1234567.891)
'{:010,}'.format(1234)
'{:08,}'.format(1234)
'{:.3}'.format(123.0)
'{:.4}'.format(123.0)
'{:}'.format(1e20)
'{:c}'.format(65)
'{:n}'.format(65)
'%s %d %5.2f' % ('a', 3, 2.5)
'%s' % 'x'
'%s' % none
'%s' % [1]
'%s %s' % 'x'
'%s' % ('a','b')
'%(a)s' % {'a': 1}
'%d' % 'a'
'%d' % 2.9
'%x %X %o %#x' % (255,255,8,255)
'%05d|%-5d|%+d|% d' % (1,2,3,4)
'%e %g' % (12345.678, 0.00001)
'%r' % 'a'
'%c' % 65
'%c' % 'a'
'%%'
'%%' % ()
'%5s|%-5s|' % ('a','b')
'%.2s' % 'abc'
'%*d' % (5, 1)
'%' % 1
'%y' % 1
'%i' % true
'%.3d' % 5
l|sort
l|sort(reverse=true)
['b','A','c']|sort
['b','A','c']|sort(case_sensitive=true)
messages|sort(attribute='role')|map(attribute='role')|list
[1,'a']|sort
l|first
l|last
[]|first
[]|last
''|first
s|first
s|last
d|first
d|last
l|sum
[1.5,2]|sum
messages|sum(attribute='n')
['a']|sum
l|min
l|max
[]|min
['b','A']|min
['b','A']|max
['b','A']|min(case_sensitive=true)
l|join
l|join(', ')
messages|join('|', attribute='role')
l|length
n|length
none|length
x|length
s|length
u|length
l|reverse|list
s|reverse
d|reverse|list
l|unique|list
['a','A','b']|unique|list
['a','A','b']|unique(true)|list
messages|map(attribute='role')|list
messages|map(attribute='zz')|list
messages|map(attribute='zz', default='q')|list
messages|map('length')|list
['a','b']|map('upper')|list
['a','b']|map('replace','a','z')|join
['a','b']|map('nofilter')|list
messages|selectattr('role','equalto','user')|list
messages|selectattr('n')|list|length
messages|selectattr('n','defined')|list|length
messages|rejectattr('role','in',['user','tool'])|map(attribute='role')|list
[1,2,3,4]|select('even')|list
[1,2,3,4]|reject('even')|list
[0,1,'',none]|select|list
[1,2,3]|select('gt', 1)|list
[1,2,3]|select('>', 1)|list
[1,2,3]|select('divisibleby', 3)|list
[1]|select('nosuch')|list
x|select|list
x|map('upper')|list
l|list is l
l is sameas l
messages|groupby('role')
messages|groupby('role')|map(attribute='grouper')|list
(messages|groupby('role'))[0].list|length
(messages|groupby('role'))[0][0]
{'b':1,'a':2}|dictsort
{'b':1,'a':2}|dictsort(by='value')
{'b':1,'A':2}|dictsort(true)
{'b':1,'a':2}|dictsort(false,'value',true)
[1,2,3,4,5]|batch(2)|list
[1,2,3,4,5]|batch(2,'x')|list
[1,2,3,4,5]|slice(2)|list
[1,2,3,4,5]|slice(3,'x')|list
'abc'|list
{'a':1}|list
5|list
none|list
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2)
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent(2, blank=true)
'a\nb\n'|indent('> ', true)
''|indent(2,true)
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(11, false, '...', 0)
'foo bar baz qux quux corge'|truncate(14, end='!')
'a b  c'|wordcount
'1.5'|float
'abc'|float
'abc'|float(2.5)
'42'|int
'42.9'|int
'abc'|int
'abc'|int(7)
'ff'|int(0, 16)
'0xff'|int(0, 16)
'1e3'|int
' 42 '|int
'4_2'|int
'_42'|int
none|int
2.9|int
-2.9|int
true|int
x|int
x|float
2.5|round
3.5|round
2.567|round(2)
2.567|round(1,'ceil')
2.567|round(1,'floor')
5|round
1234|round(-2)
1250|round(-2)
2.5|round(method='x')
'a'|round
-5|abs
-5.5|abs
'a'|abs
'  x  '|trim
'xxaxx'|trim('x')
none|trim
5|string ~ 'x'
'<a href="x">\'&'|e
'<a>'|escape ~ '<b>'
('<a>'|escape) + '<b>'
('<a>'|safe) + '<b>'
('<a>'|safe)|upper
'<a>'|safe|e
'<a>'|safe|forceescape
['<a>'|safe, '<b>']
'Hello'|replace('l','L')
'Hello'|replace('l','L',1)
5|replace(5,6)
'a'|default('b')
x|default('b')
x|d
''|default('b')
''|default('b', true)
none|default('b')
d.zz|default('b')
x.y|default('b')
'a b&c/d?é'|urlencode
{'a b':'c&d/'}|urlencode
1000000|filesizeformat
1|filesizeformat
1500|filesizeformat(true)
'%s-%s'|format(1,2)
'%(a)s'|format(a=1)
'a'|center(5) ~ '|'
d|attr('b')
d|tojson
messages|tojson
d|tojson(indent=2)
d|tojson(indent=0)
d|tojson(indent='\t')
d|tojson(separators=(',',':'))
d|tojson(sort_keys=true)
'é<\u2028\x7f\x1f"\\/\n'|tojson
'é😀\x7f'|tojson(ensure_ascii=true)
1.0|tojson
1e100|tojson
none|tojson
x|tojson
{1:2, none:3, true:4, 1.5:5}|tojson
{(1,2):3}|tojson
(1,2)|tojson
l|map('abs')|tojson
[]|tojson ~ {}|tojson
[]|tojson(indent=2)
[[],[1]]|tojson(indent=2)
s is string
s is mapping
d is mapping
l is sequence
s is sequence
d is sequence
n is sequence
n is number
t is number
f is float
n is integer
t is integer
t is boolean
none is none
x is defined
x is not defined
x is undefined
s is defined
d.zz is defined
x.y is defined
l is iterable
n is iterable
x is iterable
4 is even
5 is odd
4.5 is odd
6 is divisibleby 3
6 is divisibleby(4)
6 is divisibleby 0
5 is eq 5
5 is equalto(5)
5 is ne 4
5 is lt 6
5 is ge 5
5 is in [5]
5 is not in [5]
'abc' is lower
'ABC' is upper
'aB' is upper
range is callable
s is callable
true is true
1 is true
false is false
'upper' is filter
'nope' is filter
'even' is test
s is nosuch
s is string is string
not s is string
s is not string
-1|abs
-1.5|abs
1 if true
1 if false
1 if false else 2
1 if x else 2 if x else 3
(1 if false) is defined
s if s is string else 'no'
1 and 2
0 and 2
0 or 2
'' or none
not '' and 1
1 or x.y
l[0]
l.0
d.b
d.b.c
d.a[1].x
d.a.1.x
messages.0.role
loop
dict(a=1, b=2)
dict([('a',1)], b=2)
dict({'a':1})
dict(1)
namespace(a=1)
namespace(a=1).a
namespace(a=1).zz
cycler('a','b').next()
l.append(1)
l.pop()
l.index(1)
l.index(9)
l.count(1)
l.copy()
d.update({})
d.pop('b')
d.copy() == d
(1,2).index(2)
(1,2).count(1)
s.__class__
s._x
''.__class__.__mro__
x.__class__
d.__len__
raise_exception('boo')
raise_exception('bo\no')
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S.%f %z%Z%%')
strftime_now('')
strftime_now(1)
upper
foo()
s()
1()
s.upper.lower
s.nosuch()
d.nosuch()
1.upper()
d.items.x
messages[0]['role']['x']
messages['role']
messages.role
none.x
none['x']
n.x
n[0]
n['x']
d[l]
l['a']
s['upper']()
s['zz']
{'upper':1}.upper
[1,2,3][true]
[1,2,3][1.0]
l[::0]
*l
l|
1 +
(1
huge ~ ' ' ~ [huge] ~ ' ' ~ {'a': huge}|tojson
huge is integer
s[1:'x']
d[1:2]
n[1:2]
messages[2].content[:1]
x[1:]
range(4).count(2) ~ range(4).index(3)
'STRASSE ß ﬁ'.casefold()
(5|items) is string
(5|unique) is defined
messages|truncate(9)|length
{d.items(): 1}
'' % range(4) ~ '' % []
'%s' % x
('<a>'|e)|list
'ab'.title() ~ 'ΑΣ'.title() ~ 'ΑΣ'.capitalize() ~ 'ΑΣ Α'.lower()
"""

# Whole templates, each on one line; ⏎ stands for a newline.
TEMPLATES = r"""
'{{}} {}'.format(1)
{{ 1 }
{{ 'a }}
{% if %}
{% if x %}
{% for %}{% endfor %}
{% for x in l %}
{% endfor %}
{% nosuch %}
{% set %}
{% set x %}
{% set 1 = 2 %}
{% set x.y = 2 %}
{% macro %}{% endmacro %}
{% break %}
{% continue %}
{% raw %}
{# x
{{ 1 $ 2 }}
{{ 'abc' is }}
{{ x y }}
{{ }}
{% for x in l %}{{ x }}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}
{% for x in l %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}
{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}
{% for x in l %}{{ loop.cycle('a','b') }}{% endfor %}
{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}
{% for x in l if x > 1 %}{{ x }}{{ loop.last }}{% endfor %}
{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}
{% for x in [] %}{{ x }}{% else %}none{% endfor %}
{% for x in undefinedx %}{{ x }}{% else %}none{% endfor %}
{% for x in none %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d|dictsort %}{{ k }};{% endfor %}
{% for k in d %}{{ k }};{% endfor %}
{% for a, b in [(1,2),(3,4)] %}{{ a+b }};{% endfor %}
{% for a, (b, c) in [(1,(2,3))] %}{{ a+b+c }};{% endfor %}
{% for a, b in [(1,2,3)] %}{% endfor %}
{% for a, b in [(1,)] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}
{% for c in 'aé中' %}{{ c }}.{% endfor %}
{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% for y in l %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}
{% for x in l %}{% set o = loop %}{% for y in [1] %}{{ o.index }}{% endfor %}{% endfor %}
{% for x in l %}{% set q = x %}{% endfor %}{{ q }}
{% set q = 0 %}{% for x in l %}{% set q = q + x %}{{ q }}{% endfor %}{{ q }}
{% set ns = namespace(q=0) %}{% for x in l %}{% set ns.q = ns.q + x %}{% endfor %}{{ ns.q }}{{ ns }}
{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}
{% set ns = {} %}{% set ns.a = 1 %}
{% set nosuch.a = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set (a, b) = (1, 2) %}{{ a }}{{ b }}
{% set a = 1, 2 %}{{ a }}
{% set a %}x{{ n }}y{% endset %}{{ a }}{{ a is string }}
{% set a | upper %}x{{ n }}y{% endset %}{{ a }}
{% set a | upper | replace('X','z') %}x{{ n }}y{% endset %}{{ a }}
{% filter upper %}x{{ s }}{% endfilter %}
{% filter upper|replace('H','J') %}x{{ s }}{% endfilter %}
{% if false %}a{% elif 0 %}b{% elif n == 5 %}c{% else %}d{% endif %}
{% if x %}a{% else %}b{% endif %}
{% if n is defined and n > 3 %}a{% endif %}
{% if 1, 2 %}a{% endif %}
{% if true %}{% set z = 1 %}{% endif %}{{ z }}
{% if false %}{% set z = 1 %}{% endif %}{{ z }}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% with %}{% set a = 2 %}{{ a }}{% endwith %}{{ a }}
{% with a = 1 %}{% with b = a %}{{ b }}{% endwith %}{% endwith %}
{% macro m(a, b=2) %}[{{ a }}|{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=1, a=5) }}{{ m() }}
{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}
{% macro m(a, b=a) %}[{{ a }}|{{ b }}]{% endmacro %}{{ m(1) }}
{% macro m(a) %}{% endmacro %}{{ m(1,2) }}
{% macro m(a) %}{% endmacro %}{{ m(c=2) }}
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1,2,3,k=4) }}
{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}in{{ n }}{% endcall %}
{% macro m() %}{{ caller(5) }}{% endmacro %}{% call(x) m() %}in{{ x }}{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}in{% endcall %}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(5) }}
{% macro m() %}{{ z }}{% endmacro %}{% set z = 3 %}{{ m() }}
{% for z in [1,2] %}{% macro m() %}{{ z }}{% endmacro %}{{ m() }}{% endfor %}
{% macro m() %}{{ z }}{% endmacro %}{% for z in [1,2] %}{{ m() }}{% endfor %}
{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}
{% macro m(x) %}  a {%- if x %} b {% endif -%} c  {% endmacro %}{{ m(1) }}|{{ m(0)|trim }}
{% for i in [[1,[2,[3]]]] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{% endif %}{% endfor %}
{% for i in [[1,[2]]] recursive %}{{ loop.depth }}{% if i is iterable %}{{ loop(i) }}{% endif %}{% endfor %}
{% for i in l %}{{ loop(i) }}{% endfor %}
{% raw %}{{ x }}{% if %}{% endraw %}
{%- raw -%}  {{ x }}  {%- endraw -%}
a{# comment #}b{#- c -#} d
a  {{- 1 -}}  b
a⏎  {% if true %}⏎b⏎  {% endif %}⏎c
a⏎  {%+ if true %}⏎b⏎  {%+ endif +%}⏎c
a⏎  {%- if true -%}⏎  b⏎  {%- endif -%}⏎  c
  {% if true %}x{% endif %}
  {{ 1 }}⏎  {{ 2 }}⏎
x {% if true %}⏎  y{% endif %}⏎⏎
{# a #}⏎{# b #}⏎c
⏎⏎  {# a #}  ⏎c
  {% raw %}⏎  x⏎  {% endraw %}⏎y
{% if true %}⏎⏎x{% endif %}
{{ 1 }}⏎⏎{{ 2 }}
{{ '}}' }}{{ "%}" }}
{{ {'a': {'b': 1}} }}
{{ {'a': {'b': 1}}}}
{% set a = {'x': 1} %}{{ a.x }}
{% set x = 1 %}{% set x = x + 1 %}{{ x }}
{% generation %}a{{ n }}{% endgeneration %}
{% generation %}{% set zz = 1 %}{% endgeneration %}{{ zz }}
{% print n %}
{% set j = joiner(', ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}
{% set g = l|map('abs') %}{{ g|list }}{{ g|list }}
{% for x in l|map('abs') %}{{ loop.length }}{{ loop.last }}{{ x }} {% endfor %}
{% for x in l|select %}{{ loop.index }}{{ loop.revindex }}{{ loop.last }} {% endfor %}
{% set g = l|select %}{{ g|first }}{{ g|first }}{{ g|list }}
{{ (l|select)|length }}
{{ (l|select)|last }}
{{ (l|select)[0] }}
{% for m in messages %}{{ m.role }}: {{ m.content }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for m in messages if m.role != 'tool' %}{{ m.content|upper }}{% endfor %}
{% set first = messages[0] %}{% set rest = messages[1:] %}{{ rest[0].content }}{{ first.content }}
{{ messages|map(attribute='content')|select('string')|map('trim')|join(' ') }}
{% for x in l %}{% set ns = namespace(a=x) %}{{ ns.a }}{% endfor %}
{% set x = [] %}{% for i in l %}{% set x = x + [i] %}{% endfor %}{{ x }}
{% if messages[0]['content'] is string %}a{% endif %}
{{ 'a' if messages[0].content is not mapping and messages[0].content is iterable else 'b' }}
{%set a=1%}{{a}}{%if a%}b{%endif%}
{{ [1,2,3,] }}{{ {'a':1,} }}{{ (1,2,) }}
{{ foo(bar }}
{{ d['a'][1]['x'] is none }}
{{ "a" "b" 'c' }}
{{ l|join(d='-') }}
{{ l|join(separator='-') }}
{{ s|replace('o') }}
{{ s.replace('o') }}
{{ s.replace(old='o', new='a') }}
{{ s.split(sep='o') }}
{{ range(3)|join('-') }}{{ 2 in range(3) }}{{ range(3)[1] }}{{ range(3)|last }}{{ range(0,5,2)|reverse|list }}
{{ [1,2]|tojson|safe }}{{ ('x'|tojson) ~ 'y' }}
{{ none|string }}{{ true|string }}{{ x|string }}
{{ 'abc'|first|upper }}{{ 'abc'|batch(2)|map('join')|list }}
{{ [[1,2],[3]]|map('sum')|list }}{{ [[1,2],[3]]|sum(start=[]) }}
{{ 'x'.join(['a', 'b']) if true }}
{{ - 5 }}{{ +5 }}{{ -n }}{{ not not n }}{{ --5 }}
{{ -s }}
{{ 5 - 3 - 1 }}{{ 2 * 3 + 4 * 5 }}{{ (2 + 3) * 4 }}{{ 10 / 4 }}{{ 10 / 5 }}{{ 7 // 2 * 2 }}{{ 2 ** 10 }}
{{ 1 + 1 ~ 2 }}{{ 'a' ~ 1 + 1 }}
{{ s[2:][::-1][:3] }}
{{ (s, n)[0] }}{{ [s, n][1] }}
{{ 'a' 'b' == 'ab' }}
{{ [x, 1] }}{{ {'a': x} }}
{{ x == y }}{{ x == none }}{{ x != 1 }}{{ x in [y] }}
{{ x < 1 }}
{{ x + 1 }}
{{ 1 + x }}
{{ 'a' + x }}
{{ x ~ 'a' }}
{{ x() }}
{{ x|upper }}|{{ x|trim }}|{{ x|join }}|{{ x|list }}|{{ x|sort }}|{{ x|first }}|{{ x|e }}
{{ x|tojson }}
{{ x|items|list }}{{ x|reverse|list }}
{{ x|last }}
{{ x|abs }}
{{ x|round }}
{{ x|sum }}{{ x|max }}{{ x|unique|list }}{{ x|batch(2)|list }}{{ x|wordcount }}{{ x|indent }}
{% for c in x.y %}{% endfor %}
{{ foo.bar is defined }}
{{ 'caf\u00e9'|upper|lower|length }}
{{ '%s' % x }}{{ '{}'.format(x) }}
{{ 1 is sameas 1 }}{{ 'a' is sameas 'a' }}{{ none is sameas none }}{{ [] is sameas [] }}
{{ "é"|urlencode }}{{ 5|urlencode }}
{% for x in l %}{% break %}{% else %}e{% endfor %}
{% for x in l %}{% continue %}{% else %}e{% endfor %}
{% for x in l %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{% else %}e{% endfor %}
{{ 'x' is in 'xyz' }}{{ 'x' is in('xyz') }}
{% set a = 'x' if false %}{{ a is defined }}{{ a }}
{{ [a for a in l] }}
{{ lambda }}
{% for i in range(3) -%} {{ i }} {%- endfor %}
{% for i in range(3) %}{{ i }}{% endfor -%}   x
{%- if true -%}  a  {%- else -%}  b  {%- endif -%}  c
{{-s-}}{{- s -}}
{{ 5 if n > 3 and n < 10 or false else 6 }}
{{ l == [3,1,2] }}{{ l != l }}{{ (1,2) == (1,2) }}{{ {'a':[1]} == {'a':[1]} }}
{{ 'a' <= 'a' }}{{ [1,2] >= [1] }}{{ (1,'a') < (1,'b') }}{{ [1,'a'] < [1,2] }}
{{ d < d }}
{{ none < 1 }}
{{ true + true }}{{ true * 3 }}{{ -true }}{{ 5 // true }}
{{ 1.0 // 0.3 }}{{ -1.5 // 0.5 }}{{ 5.5 % -2 }}{{ -0.0 }}{{ 0.1 + 0.2 }}{{ 1e308 * 10 }}{{ -1e308 * 10 }}
{{ 1e308 ** 2 }}
{{ 3.0 * 2 }}{{ 7 / 7 }}{{ 2 ** 0.5 }}{{ 1 / 3 }}{{ 100 / 3 }}{{ 1e3 }}{{ 12345678901234567890.0 }}{{ 0.00001234 }}
{{ 'x' * -1 }}{{ [1] * 0 }}{{ 'ab' * true }}
{{ 'x' * 1.5 }}
{{ 'ab' - 'a' }}
{{ [1] - [1] }}
{{ s.nosuch }}{{ s.nosuch is defined }}
{{ messages[0].content.split(' ')[0] }}
{{ messages[0].get('content') }}{{ messages[0].get('zz', 'dflt') }}
{{ messages|length - 1 }}{{ messages|length * 2 }}
{{ (messages|last).role }}{{ messages|first|length }}
{{ 'a,b'.split(',')|first }}{{ 'a,b'.split(',')[-1] }}
{{ s|lower|replace('world', n|string) }}
{{ loop is defined }}{% for x in [1] %}{{ loop is defined }}{% endfor %}
{% for x in l %}{% else %}{{ loop is defined }}{% endfor %}
{% for x in l %}{{ loop }}{% endfor %}
{% for x in l %}{{ loop|length }}{% endfor %}
{% macro a() %}{% for x in l %}{{ loop.index }}{% endfor %}{% endmacro %}{{ a() }}
{% for x in [1,2] %}{% macro a() %}{{ loop.index }}{% endmacro %}{{ a() }}{% endfor %}
{% set a = 1 %}{% macro m() %}{% set a = 2 %}{{ a }}{% endmacro %}{{ m() }}{{ a }}
{% set x %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ x|length }}
{% if true %}{% macro q() %}Q{% endmacro %}{% endif %}{{ q() }}
{{ m2 is defined }}{% macro m2() %}{% endmacro %}{{ m2 is defined }}
{% call foo() %}{% endcall %}
{% call 5 %}{% endcall %}
{% do 1 %}
{{ super() }}
{% if n is number %}{{ n|unknownfilter }}{% endif %}
{% if false %}{{ n|unknownfilter }}{% endif %}ok
{{ n|unknownfilter }}
{{ n is unknowntest }}
{% if false %}{% for x in l %}{{ n|unknownfilter }}{% endfor %}{% endif %}ok
{{ n|unknownfilter if false }}
"""


def strftime_now(format):
    return datetime.datetime(2024, 7, 26).strftime(format)


def render(text):
    try:
        template = chat_template_utils._cached_compile_jinja_template(text)
        template.globals["strftime_now"] = strftime_now
        return {"rendered": template.render(**VARIABLES)}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"error": error.message}
        return {"fails": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 - whatever Python raises is the reference
        return {"fails": f"{type(error).__name__}: {error}"}


def templates():
    for line in EXPRESSIONS.strip("\n").split("\n"):
        yield "{{ " + line.replace("⏎", "\n") + " }}"
    for line in TEMPLATES.strip("\n").split("\n"):
        yield line.replace("⏎", "\n")


def main():
    print(json.dumps({"variables": VARIABLES}))
    for text in templates():
        result = render(text)
        assert " at 0x" not in str(result), text
        print(json.dumps({"template": text, **result}))


if __name__ == "__main__":
    main()
