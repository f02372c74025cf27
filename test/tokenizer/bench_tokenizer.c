/* bench_tokenizer.c - how fast tokenizers load, encode and decode; scripts/bench_tokenizer.sh builds and runs
 * it.
 *
 * usage: bench_tokenizer TEXT TOKENIZER.json...     the best of five each, in processor time of one thread */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

enum { ROUNDS = 5 };

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

typedef struct {
  double load, encode, decode; /* milliseconds */
  size_t n_ids;
} Times;

static void take_best(double *best, double start) {
  double ms = now_ms() - start;
  if (*best == 0 || ms < *best) *best = ms;
}

static Status run_once(const char *path, const MappedFile *text, Times *times, Error *err) {
  Tokenizer *tokenizer;
  IdList ids = {0};
  Buffer decoded = {0};
  double start = now_ms();
  TRY(tokenizer_open(path, &tokenizer, err));
  take_best(&times->load, start);
  start = now_ms();
  Status status = tokenizer_encode(tokenizer, (const char *)text->data, text->size,
                                   (EncodeOptions){.parse_special = true}, &ids, err);
  take_best(&times->encode, start);
  start = now_ms();
  if (status == STATUS_OK) status = tokenizer_decode(tokenizer, ids.ids, ids.count, false, &decoded, err);
  take_best(&times->decode, start);
  times->n_ids = ids.count;
  id_list_release(&ids);
  buffer_release(&decoded);
  tokenizer_close(tokenizer);
  return status;
}

int main(int argc, char **argv) {
  MappedFile text = {0};
  Error err = {{0}};
  if (argc < 3 || file_map(argv[1], STATUS_FAILED, &text, &err) != STATUS_OK) {
    fprintf(stderr, "usage: bench_tokenizer TEXT TOKENIZER.json... %s\n", err.text);
    return 2;
  }
  printf("| tokenizer.json | tokens | load ms | encode MB/s | decode MB/s |\n| --- | ---: | ---: | ---: | "
         "---: |\n");
  for (int i = 2; i < argc; i++) {
    Times times = {0};
    for (int round = 0; round < ROUNDS; round++) {
      if (run_once(argv[i], &text, &times, &err) == STATUS_OK) continue;
      fprintf(stderr, "%s\n", err.text);
      return 1;
    }
    double mb = (double)text.size / 1e6;
    printf("| %s | %zu | %.0f | %.1f | %.1f |\n", argv[i], times.n_ids, times.load, mb / times.encode * 1e3,
           mb / times.decode * 1e3);
  }
  file_unmap(&text);
  return 0;
}
