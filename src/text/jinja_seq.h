/* Filters over sequences, for the table in jinja_filter.c. */
#ifndef MICA_TEXT_JINJA_SEQ_H
#define MICA_TEXT_JINJA_SEQ_H

#include "text/jinja_int.h"

mica_status jfilter_attr(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_batch(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_dictsort(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_first(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_groupby(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_items(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_join(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_last(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_list(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_map(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_max(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_min(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_reject(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_rejectattr(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_reverse(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_select(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_selectattr(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_slice(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_sort(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_sum(jr *r, jv self, jcall *c, jv *out);
mica_status jfilter_unique(jr *r, jv self, jcall *c, jv *out);

#endif
