/* filters.h - private to filters.c and sequences.c: the filters of the one table. */
#ifndef AUK_JINJA_FILTERS_H
#define AUK_JINJA_FILTERS_H

#include "tokenizer/jinja/eval.h"

bool is_given(Value value);    /* as an argument */
bool given_truth(Value value); /* given and true */

typedef Status Filter(Render *render, Value self, const CallArgs *args, Value *out);
Filter filter_batch, filter_dictsort, filter_first, filter_groupby, filter_items, filter_join, filter_last,
    filter_length, filter_list, filter_map, filter_max, filter_min, filter_reject, filter_rejectattr,
    filter_reverse, filter_select, filter_selectattr, filter_slice, filter_sort, filter_sum, filter_unique;

#endif
