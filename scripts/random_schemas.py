"""Random JSON Schemas and texts that are near them, the same with every Python: for scripts/fuzz_schema.py and
test/constrain/test_oracle.py."""
import copy
import json
import re
import zlib

KEYS = ["a", "b", "ab", "c d", "\u00e9", ""]
STRINGS = ["", "a", "ab", "abc", "b", "ba", "x-1", "12", "a\nb", "\u00e9", "\U0001f600z", 'q"\\', "aaaaaaaaaaaaab"]
PATTERNS = ["^a", "b$", "^[a-c]*$", "a|x", "^.{2,3}$", "[0-9]+", "^(ab?)+$", "^(?!a)", "^x-\\d{1,2}$"]
LONG_PATTERN = "(a{1,70}b){1,80}$"
NUMBERS = [0, 1, -1, 2, 3, 7, 10, 99, 1.5, -0.5, 1.0, 12.25, 1e3, 100]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


class Draws:
    """Random numbers of our own: those of Python's module may change with its version."""

    def __init__(self, seed):
        self.state = (seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % 2**64
        for _ in range(3):
            self.below(2)

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def chance(self, percent):
        return self.below(100) < percent

    def choice(self, items):
        return items[self.below(len(items))]

    def sample(self, items, n):
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(min(n, len(rest)))]


def value(r, depth=0):
    kind = r.below(5 if depth > 2 else 8)
    if kind == 0:
        return r.choice([None, True, False])
    if kind in (1, 2):
        return r.choice(NUMBERS)
    if kind in (3, 4):
        return r.choice(STRINGS)
    if kind == 5:
        return [value(r, depth + 1) for _ in range(r.below(4))]
    return {r.choice(KEYS): value(r, depth + 1) for _ in range(r.below(4))}


# --- keywords: each gives its value, from the random numbers, the maker of schemas and the depth


def schemas(r, m, d, most=3):
    return [m.schema(d + 1) for _ in range(r.between(1, most))]


def one_schema(r, m, d):
    return m.schema(d + 1)


def key_schemas(r, m, d):
    return {k: m.schema(d + 1) for k in r.sample(KEYS, r.between(1, 3))}


def dependency(r, m, d):
    return {r.choice(KEYS): r.sample(KEYS, 1) if r.chance(50) else m.schema(d + 1)}


def items_or_list(r, m, d):
    return schemas(r, m, d) if r.chance(50) else m.schema(d + 1)


KEYWORDS = {
    "type": lambda r, m, d: r.choice([r.choice(TYPES), r.sample(TYPES, 2)]),
    "enum": lambda r, m, d: [value(r, 1) for _ in range(r.between(1, 4))],
    "const": lambda r, m, d: value(r, 1),
    "minimum": lambda r, m, d: r.choice(NUMBERS),
    "maximum": lambda r, m, d: r.choice(NUMBERS),
    "exclusiveMinimum": lambda r, m, d: r.choice(NUMBERS),
    "exclusiveMaximum": lambda r, m, d: r.choice(NUMBERS),
    "multipleOf": lambda r, m, d: r.choice([1, 2, 3, 7, 0.5, 0.25]),
    "minLength": lambda r, m, d: r.below(4),
    "maxLength": lambda r, m, d: r.below(5),
    "pattern": lambda r, m, d: r.choice(m.patterns),
    "items": one_schema,
    "prefixItems": schemas,
    "contains": one_schema,
    "minContains": lambda r, m, d: r.below(3),
    "maxContains": lambda r, m, d: r.below(3),
    "minItems": lambda r, m, d: r.below(4),
    "maxItems": lambda r, m, d: r.below(4),
    "uniqueItems": lambda r, m, d: not r.chance(10),
    "properties": key_schemas,
    "patternProperties": lambda r, m, d: {r.choice(m.patterns): m.schema(d + 1)},
    "additionalProperties": one_schema,
    "propertyNames": one_schema,
    "required": lambda r, m, d: r.sample(KEYS, r.between(1, 2)),
    "minProperties": lambda r, m, d: r.below(3),
    "maxProperties": lambda r, m, d: r.below(4),
    "dependentRequired": lambda r, m, d: {r.choice(KEYS): r.sample(KEYS, 1)},
    "dependentSchemas": lambda r, m, d: {r.choice(KEYS): m.schema(d + 1)},
    "allOf": schemas,
    "anyOf": schemas,
    "oneOf": schemas,
    "not": one_schema,
    "if": one_schema,
    "then": one_schema,
    "else": one_schema,
    "unevaluatedItems": lambda r, m, d: r.chance(30) and m.schema(d + 1),
    "unevaluatedProperties": lambda r, m, d: r.chance(30) and m.schema(d + 1),
}

# Keywords of earlier drafts: those of 2020-12 without some, with others.
SINCE_6 = {"const", "contains", "propertyNames", "exclusiveMinimum"}
SINCE_7 = {"if", "then", "else"}
SINCE_2019 = {"minContains", "maxContains", "dependentRequired", "dependentSchemas", "unevaluatedItems",
              "unevaluatedProperties"}
EARLIER = {"items": items_or_list, "additionalItems": one_schema}
BEFORE_2019 = {**EARLIER, "dependencies": dependency}


def keywords_but(absent, others):
    return {**{name: make for name, make in KEYWORDS.items() if name not in absent | {"prefixItems"}}, **others}


DRAFTS = {
    "https://json-schema.org/draft/2020-12/schema": KEYWORDS,
    # There jsonschema takes items for evaluated that `contains` accepts, but not members that additionalProperties
    # accepts.
    "https://json-schema.org/draft/2019-09/schema": keywords_but({"unevaluatedItems", "unevaluatedProperties"},
                                                                 EARLIER),
    "http://json-schema.org/draft-07/schema#": keywords_but(SINCE_2019, BEFORE_2019),
    "http://json-schema.org/draft-06/schema#": keywords_but(SINCE_2019 | SINCE_7, BEFORE_2019),
    "http://json-schema.org/draft-04/schema#": keywords_but(
        SINCE_2019 | SINCE_7 | SINCE_6,
        {**BEFORE_2019, "exclusiveMaximum": lambda r, m, d: r.chance(60),
         "exclusiveMinimum": lambda r, m, d: r.chance(60)}),
}

EVERY = {**BEFORE_2019, **KEYWORDS}

# Keywords that say something together.
FAMILIES = [
    ["type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const"],
    ["type", "minLength", "maxLength", "pattern", "enum", "const"],
    ["items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "type"],
    ["contains", "minContains", "maxContains", "items", "maxItems", "uniqueItems", "prefixItems"],
    ["prefixItems", "contains", "unevaluatedItems", "anyOf", "allOf", "if", "then", "else", "additionalItems"],
    ["properties", "patternProperties", "additionalProperties", "required", "propertyNames", "type"],
    ["properties", "required", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
     "dependencies", "propertyNames"],
    ["properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "anyOf", "oneOf", "allOf",
     "if", "then", "else", "dependentSchemas", "not"],
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "type", "enum", "const"],
]
# Keywords that say nothing alone, with the ones that they need.
PARTNERS = {"if": ["then", "else"], "then": ["if"], "else": ["if"], "minContains": ["contains"],
            "maxContains": ["contains"], "additionalItems": ["items"], "exclusiveMaximum": ["maximum"],
            "exclusiveMinimum": ["minimum"]}


class Maker:
    """Schemas of one draft. A directed maker takes keywords that say something together."""

    def __init__(self, r, draft=None, directed=False):
        self.r = r
        self.keywords = KEYWORDS if draft is None else DRAFTS[draft]
        self.draft = draft
        self.directed = directed
        self.patterns = PATTERNS if directed else PATTERNS + [LONG_PATTERN]
        self.references = []  # that schemas may name

    def is_draft_4(self):
        return "const" not in self.keywords

    def boolean(self, truth):
        """A boolean schema, which draft 4 has not."""
        return truth if not self.is_draft_4() else {} if truth else {"not": {}}

    def small(self):
        r = self.r
        if self.references and r.chance(30):
            return {"$ref": r.choice(self.references)}
        return r.choice([self.boolean(True), self.boolean(r.chance(50)), {"type": r.choice(TYPES)},
                         {"type": r.choice(TYPES)}, {"enum": [value(r, 1) for _ in range(2)]},
                         {"maxLength": 1, "maximum": 1}, {"minLength": 2, "minimum": 2}])

    def names(self, depth):
        r = self.r
        if not self.directed:
            return r.sample(sorted(self.keywords), r.between(1, 4 if depth < 2 else 2))
        family = [name for name in r.choice(FAMILIES) if name in self.keywords]
        names = r.sample(family, r.between(2, 4) if depth == 0 else r.between(1, 2))
        names += r.sample(sorted(self.keywords), 1) if r.chance(25) else []
        names += r.sample(sorted(EVERY), 1) if r.chance(8) else []  # in some drafts an annotation
        for name in list(names):
            partners = [partner for partner in PARTNERS.get(name, []) if partner in self.keywords]
            if partners and not set(names) & set(partners) and (self.is_draft_4() or "xclusive" not in name):
                names.append(r.choice(partners))
        return list(dict.fromkeys(names))

    def schema(self, depth=0):
        r = self.r
        if depth > 3 or (depth and r.chance(25 * depth if self.directed else 6)):
            return self.small()
        made = {name: self.keywords.get(name, EVERY[name])(r, self, depth) for name in self.names(depth)}
        for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if self.is_draft_4() and exclusive in made:
                made.setdefault(bound, r.choice(NUMBERS))
        if isinstance(made.get("items"), bool):
            made.pop("additionalItems", None)  # jsonschema fails there
        return made

    # --- references

    def definitions(self):
        """Schemas that $ref names by pointer, by anchor, and by identifier; those of the maker, with its names."""
        r = self.r
        is_late = self.draft is None or "20" in self.draft
        place = "$defs" if is_late else "definitions"
        identifier = "id" if self.is_draft_4() else "$id"
        anchor = {"$anchor": "n"} if is_late else {identifier: "#n"}
        pointed, named, whole = self.schema(1), self.schema(1), self.schema(1)
        if not isinstance(named, dict) or "$ref" in named:
            named = {"type": r.choice(TYPES)}
        if not isinstance(whole, dict) or "$ref" in whole:
            whole = {"maxLength": 1}
        whole = {identifier: r.choice(["http://e/d/whole", "whole", "../d/whole", "/d/whole"]), **whole,
                 place: {"in": {**anchor, "type": r.choice(TYPES)}}}
        self.references = [f"#/{place}/x~1y%20z", "#n", "http://e/d/whole", "whole", "whole#n",
                           f"http://e/d/whole#/{place}/in"]
        return {identifier: "http://e/d/root", place: {"x/y z": pointed, "named": {**anchor, **named}, "whole": whole}}


def whole_schema(r, directed=False):
    draft = r.choice(sorted(DRAFTS)) if r.chance(50) else None
    maker = Maker(r, draft, directed)
    if not directed:
        made = maker.schema()
        if r.chance(20):
            made["$defs"] = {"x": maker.schema(1)}
            made.setdefault("anyOf", []).append({"$ref": "#/$defs/x"})
        return {"$schema": draft, **made} if draft else made
    defined = maker.definitions() if r.chance(25) else {}
    made = maker.schema()
    if defined:
        reference = {"$ref": r.choice(maker.references)}
        where = r.below(4)
        if where == 0:
            made = {**made, **reference}
        elif where == 1:
            made.setdefault("anyOf", []).append(reference)
        elif where == 2:
            made["properties"] = {**made.get("properties", {}), "a": reference, "b": {"$ref": "#"}}
        else:
            made["allOf"] = [reference]
    made = {**defined, **made}
    if draft in (None, "https://json-schema.org/draft/2020-12/schema") and r.chance(6):
        made = extended(maker, made)
    return {"$schema": draft, **made} if draft else made


def extended(maker, leaf):
    """A tree that takes other nodes by $dynamicRef: by itself, or within a schema that gives its nodes another meaning,
    which auk refuses."""
    tree = {"$id": "http://e/tree", "$dynamicAnchor": "node", "type": ["object", "array", "number"],
            "additionalProperties": {"$dynamicRef": "#node"}, "items": {"$dynamicRef": "#node"}}
    leaf = {name: rule for name, rule in leaf.items() if name not in ("$id", "$defs")}
    if "$ref" in json.dumps(leaf):
        leaf = {"maxItems": 2, "maxProperties": 1}
    if maker.r.chance(70):
        return {**leaf, **tree} if maker.r.chance(50) else {"$id": "http://e/outer", "$ref": "tree", **leaf,
                                                            "$defs": {"tree": tree}}
    return {"$id": "http://e/extended", "$dynamicAnchor": "node", "$ref": "tree", **leaf, "$defs": {"tree": tree}}


# --- texts near a schema


def targets(schema):
    """The schemas that the references of whole_schema() name."""
    places = {**schema.get("$defs", {}), **schema.get("definitions", {})} if isinstance(schema, dict) else {}
    whole = places.get("whole", {})
    inner = {**whole.get("$defs", {}), **whole.get("definitions", {})}.get("in", {})
    found = {"#": schema, "#n": places.get("named", True), "http://e/d/whole": whole, "whole": whole, "whole#n": inner}
    for place in ("$defs", "definitions"):
        found[f"#/{place}/x~1y%20z"] = places.get("x/y z", True)
        found[f"#/{place}/x"] = places.get("x", True)
        found[f"http://e/d/whole#/{place}/in"] = inner
    found["tree"] = places.get("tree", True)
    found["#node"] = places.get("tree", schema)
    return found


class Writer:
    """Values that hopefully fit a schema: nothing is proven here."""

    def __init__(self, r, schema):
        self.r = r
        self.targets = targets(schema)

    def fitting(self, schema, depth=0):
        r = self.r
        if not isinstance(schema, dict) or depth > 5:
            return value(r, 2)
        schema = self.flat(schema, depth)
        if "const" in schema:
            return copy.deepcopy(schema["const"])
        if "enum" in schema:
            return copy.deepcopy(r.choice(schema["enum"]))
        kind = self.kind(schema)
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self.array(schema, depth)
        if kind in ("number", "integer"):
            return self.number(schema, kind)
        if kind == "string":
            return self.string(schema)
        return None if kind == "null" else r.chance(50)

    def flat(self, schema, depth):
        """The schema with the rules of some subschemas of the same value."""
        r = self.r
        parts = list(schema.get("allOf", []))
        for name in ("anyOf", "oneOf"):
            if schema.get(name):
                parts.append(r.choice(schema[name]))
        for name in ("$ref", "$dynamicRef"):
            if name in schema:
                parts.append(self.targets.get(schema[name], True))
        if "if" in schema and r.chance(60):
            parts += [schema["if"], schema.get("then", True)]
        elif "else" in schema:
            parts.append(schema["else"])
        for part in parts if depth < 4 else []:
            if isinstance(part, dict):
                schema = joined(self.flat(part, depth + 1), schema)
        return schema

    def kind(self, schema):
        types = schema.get("type", [])
        if types and self.r.chance(95):
            return types if isinstance(types, str) else self.r.choice(types)
        found = [kind for kind, names in OF_KIND.items() if names & set(schema)]
        return self.r.choice(found if found and self.r.chance(85) else TYPES)

    def number(self, schema, kind):
        r = self.r
        low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
        near = [bound for bound in (low, high, schema.get("exclusiveMaximum"))
                if bound is not None and not isinstance(bound, bool)]
        number = r.choice(near) + r.choice([0, 0.5, 1, -1]) if near else r.choice(NUMBERS)
        step = schema.get("multipleOf", 1 if kind == "integer" else 0)
        if step and r.chance(85):
            number = number // step * step
        return int(number) if kind == "integer" and r.chance(80) else number

    def string(self, schema):
        low, high = schema.get("minLength", 0), schema.get("maxLength", 99)
        fits = [text for text in STRINGS if low <= len(text) <= high and re.search(schema.get("pattern", ""), text)]
        return self.r.choice(fits or STRINGS)

    def array(self, schema, depth):
        r = self.r
        first = schema.get("prefixItems", schema["items"] if isinstance(schema.get("items"), list) else [])
        rest = schema.get("additionalItems" if isinstance(schema.get("items"), list) else "items", True)
        if rest is True:
            rest = schema.get("unevaluatedItems", True)
        low = max(schema.get("minItems", 0), schema.get("minContains", 1) if "contains" in schema else 0)
        n = r.between(low, max(low, min(schema.get("maxItems", 4), low + 3)))
        if rest is False:
            n = min(n, len(first))
        items = [self.fitting(first[i] if i < len(first) else rest, depth + 1) for i in range(n)]
        if "contains" in schema:
            for i in r.sample(range(n), min(low, 2)):
                items[i] = self.fitting(schema["contains"], depth + 1)
        return items

    def object(self, schema, depth):
        r = self.r
        rules = schema.get("properties", {})
        rest = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
        keys = list(schema.get("required", [])) + [key for key in rules if r.chance(50)]
        keys += [key for key in [*schema.get("dependentRequired", {}), *schema.get("dependentSchemas", {}),
                                 *schema.get("dependencies", {})] if r.chance(50)]
        for key in list(keys):
            needed = schema.get("dependentRequired", schema.get("dependencies", {})).get(key, [])
            keys += needed if isinstance(needed, list) and r.chance(70) else []
        keys += r.sample(KEYS, r.below(3)) if rest is not False or r.chance(10) else []
        made = {}
        for key in list(dict.fromkeys(keys))[:max(schema.get("maxProperties", 9), r.below(3))]:
            rule = rules.get(key)
            for pattern, other in schema.get("patternProperties", {}).items():
                if re.search(pattern, key):
                    rule = other if rule is None or r.chance(50) else rule
            made[key] = self.fitting(rest if rule is None else rule, depth + 1)
        return made


OF_KIND = {
    "object": {"properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
               "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"},
    "array": {"items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "minItems",
              "maxItems", "uniqueItems", "unevaluatedItems"},
    "string": {"minLength", "maxLength", "pattern"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}


def joined(one, other):
    """The rules of both, with those of `other` where both have one, but members, required keys and types."""
    made = {**one, **other}
    for name in ("properties", "patternProperties", "dependentRequired", "dependentSchemas"):
        if name in one and name in other:
            made[name] = {**one[name], **other[name]}
    if "required" in one and "required" in other:
        made["required"] = one["required"] + other["required"]
    return made


def changed(r, whole):
    """The value after one step: a number, a string, an item or a member more, less or another."""
    if r.chance(8):
        return value(r, 1)
    if isinstance(whole, bool) or whole is None:
        return r.choice([None, True, False, 0, 1])
    if isinstance(whole, (int, float)):
        return r.choice([whole + 1, whole - 1, whole + 0.5, whole * 2, -whole, str(whole)])
    if isinstance(whole, str):
        return r.choice([whole + "a", whole[1:], "b" + whole, whole + whole, r.choice(STRINGS), [whole]])
    made = list(whole.items()) if isinstance(whole, dict) else list(whole)
    step = r.below(4)
    if step == 0 or not made:
        made.append((r.choice(KEYS), value(r, 2)) if isinstance(whole, dict) else
                    copy.deepcopy(r.choice(made)) if made and r.chance(40) else value(r, 2))
    else:
        at = r.below(len(made))
        old = made.pop(at)
        if step == 1 and isinstance(whole, dict):
            made.append((r.choice(KEYS), old[1]))
        elif step > 1 and isinstance(whole, dict):
            made.insert(at, (old[0], changed(r, old[1])))
        elif step > 1:
            made.insert(at, changed(r, old))
    return dict(made) if isinstance(whole, dict) else made


def written(r, what):
    return json.dumps(what, ensure_ascii=r.chance(30), separators=(",", ":"))


def near_texts(r, schema, n):
    """n different texts near the schema, as far as so many are found soon."""
    writer = Writer(r, schema)
    found = {}
    for i in range(4 * n):
        what = writer.fitting(schema)
        for _ in range(i % 3):
            what = changed(r, what)
        found.setdefault(written(r, what), None)
        if len(found) == n:
            break
    return list(found)


def texts(r, n):
    return [written(r, value(r)) for _ in range(n)]


N_NEAR = 24


def numbered(number):
    """A schema and texts near it, by the number of the schema."""
    r = Draws(number)
    schema = whole_schema(r, directed=True)
    return schema, near_texts(r, schema, N_NEAR)


def checksum(schema, texts):
    return f"{zlib.crc32(json.dumps([schema, texts]).encode()):08x}"
