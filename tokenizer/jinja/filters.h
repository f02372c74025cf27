/* filters.h - private to this folder: the filters of sequences.c, which template_filters[] in filters.c
 * lists, and what they share with methods.c. */
#pragma once

#include "tokenizer/jinja/eval.h"

bool is_given(Value value);    /* the argument was given */
bool given_truth(Value value); /* given and true */

void reverse_items(Value *items, size_t count);

/* Modes of filter_each(); EACH_BY_ATTRIBUTE is a flag beside EACH_SELECT or EACH_REJECT. */
enum { EACH_MAP, EACH_SELECT, EACH_REJECT, EACH_BY_ATTRIBUTE = 4 };
BuiltinCall filter_batch, filter_dictsort, filter_each, filter_extreme, filter_first, filter_groupby,
    filter_items, filter_join, filter_last, filter_length, filter_list, filter_reverse, filter_slice,
    filter_sort, filter_sum, filter_unique;
