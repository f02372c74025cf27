"""Tokenizers whose tokens say something else: a model then writes what a test wants to see written."""


def renamed(names):
    """A change of tokenizer.json (see the fixture `variant`): the tokens of one character that are the keys of `names`
    have their values as content. No token is merged from those characters any more."""

    def change(it):
        model = it["model"]
        model["vocab"] = {names.get(word, word): i for word, i in model["vocab"].items()}
        model["merges"] = [merge for merge in model["merges"]
                           if not set(names) & set("".join(merge if isinstance(merge, list) else [merge]))]
        return it

    return change
