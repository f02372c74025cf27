/* filters.h - private to filters.c and sequences.c: the filters of the one table. */
#pragma once

#include "tokenizer/jinja/eval.h"

bool is_given(Value value);    /* the argument was given */
bool given_truth(Value value); /* given and true */

void reverse_items(Value *items, size_t count);

enum { EACH_MAP, EACH_SELECT, EACH_REJECT, EACH_BY_ATTRIBUTE = 4 }; /* modes of filter_each() */
BuiltinCall filter_batch, filter_dictsort, filter_each, filter_extreme, filter_first, filter_groupby,
    filter_items, filter_join, filter_last, filter_length, filter_list, filter_reverse, filter_slice,
    filter_sort, filter_sum, filter_unique;
