/* test_guesses.cu - answers with guessed tokens are those without: guesses that are right, wrong and half
 * right, from the text, of a draft model that is the model itself, and of each kind of trained drafter. A
 * step of several rows does not give the bits of a step of one, so two tokens whose logits nearly tie may
 * change places: such answers are counted, and compared up to there.
 *
 * usage: test_guesses [few | trained | MODEL...] (MODEL/: a folder with a config.json alone, for random
 * weights); prints `N passed, N failed`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

extern "C" {
#include "cuda/backend.h"
#include "engine/drafters/draft_model.h"
#include "engine/drafters/draft_text.h"
#include "engine/drafters/published.h"
#include "engine/generate.h"
}
#include "test/cuda/check.cuh"

enum { N_PROMPT = 12, MOST_ANSWER = 24, N_CTX = N_PROMPT + MOST_ANSWER };

/* Two logits are a near tie if they differ by less than this part of all logits' standard deviation: fp16
 * activations move each by some 1e-3 of it (test_model.py). */
static const double NEAR = 0.02;

typedef enum { RIGHT, WRONG, HALF_RIGHT, FROM_TEXT, OF_ITSELF, TRAINED, N_KINDS } Kind;
static const char *const names[] = {"right",         "wrong",     "half right",
                                    "from the text", "of itself", "of a trained drafter"};

static int passed, failed;

static uint32_t number(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 16;
}

struct Oracle {
  Kind kind;
  int32_t ids[N_CTX]; /* prompt and answer */
  int n, vocab_size;
  uint32_t seed;
};

static Status propose(void *self, const DraftText *text, int most, Guesses *guesses, Error *) {
  Oracle *o = (Oracle *)self;
  while (guesses->n < most && text->n + guesses->n < o->n) {
    const int32_t id = o->ids[text->n + guesses->n];
    const bool right = o->kind == RIGHT || (o->kind == HALF_RIGHT && number(&o->seed) % 3 > 0);
    guesses->ids[guesses->n++] = right ? id : (id + 1) % o->vocab_size;
  }
  return STATUS_OK;
}

static Status hear(void *user, int32_t id, TokenReply *, Error *) {
  ((std::vector<int32_t> *)user)->push_back(id);
  return STATUS_OK;
}

struct Target {
  Model *model, *draft; /* draft NULL: no trained drafter, else no others */
  BackendModel *loaded;
  SamplerSettings sampler;
  int n_answer;
};

static Session *open_session(const Target &t, Drafter *drafter, int n_guesses, bool always) {
  Session *session;
  SessionOptions options = {};
  options.n_ctx = N_CTX, options.sampler = t.sampler, options.drafter = drafter;
  options.n_guesses = n_guesses, options.guess_always = always;
  MUST(session_open(&cuda_backend, t.loaded, t.model, &options, &session, &error));
  return session;
}

/* The model itself guesses by a draft model's rule; else the oracle or the text does. */
static Drafter make_drafter(const Target &t, Oracle *oracle) {
  Drafter drafter = {};
  if (oracle->kind == FROM_TEXT) {
    MUST(draft_text_open(N_CTX, &drafter, &error));
  } else if (oracle->kind == TRAINED) {
    static const BackendOptions on_the_gpu = {};
    PublishedOptions options = {};
    options.backend = &cuda_backend, options.backend_options = &on_the_gpu;
    options.target = t.model, options.loaded_target = t.loaded, options.model = t.draft;
    options.n_ctx = N_CTX, options.kv = KV_F16, options.cost = 1e-9;
    MUST(published_open(&options, &drafter, &error));
  } else if (oracle->kind == OF_ITSELF) {
    MUST(draft_model_open(open_session(t, NULL, 0, false), t.model->config.vocab_size, 1e-9, &drafter,
                          &error));
  } else {
    drafter.name = "oracle", drafter.self = oracle, drafter.propose = propose;
  }
  return drafter;
}

static std::vector<int32_t> answer(const Target &t, const int32_t *prompt, Drafter *drafter, int n_guesses,
                                   bool always, GuessCounts *counts) {
  std::vector<int32_t> ids;
  GenerateResult result;
  GenerateOptions options = {};
  options.max_tokens = t.n_answer;
  Session *session = open_session(t, drafter, n_guesses, always);
  MUST(session_sync(session, prompt, N_PROMPT, NULL, NULL, &error));
  MUST(generate(session, &options, hear, &ids, &result, &error));
  session_close(session);
  counts->n_steps += result.guesses.n_steps;
  counts->n_guessed += result.guesses.n_guessed;
  counts->n_accepted += result.guesses.n_accepted;
  return ids;
}

static std::vector<float> logits_after(const Target &t, const int32_t *prompt,
                                       const std::vector<int32_t> &ids, size_t n) {
  std::vector<int32_t> text(prompt, prompt + N_PROMPT);
  text.insert(text.end(), ids.begin(), ids.begin() + (long)n);
  std::vector<float> logits(t.model->config.vocab_size);
  Session *session = open_session(t, NULL, 0, false);
  MUST(session_sync(session, text.data(), (int)text.size(), NULL, NULL, &error));
  MUST(session_logits(session, logits.data(), &error));
  session_close(session);
  return logits;
}

/* How far apart the logits of two tokens are, in standard deviations of all. */
static double distance(const std::vector<float> &logits, int32_t one, int32_t other) {
  double sum = 0, squares = 0;
  for (float x : logits) sum += x, squares += (double)x * x;
  const double mean = sum / logits.size();
  return fabs(logits[one] - logits[other]) / sqrt(squares / logits.size() - mean * mean);
}

/* The probability of all tokens whose ids lie between two. A token is picked where the sum of probabilities,
 * in order of ids, passes a random number. Rounding moves each sum a little, so a number close to a border
 * picks the token on the border's other side; between the two are only tokens of next to no probability. */
static double mass_between(const std::vector<float> &logits, int32_t one, int32_t other, double temperature) {
  double most = -INFINITY, all = 0, between = 0;
  for (float x : logits) most = fmax(most, x);
  for (int32_t i = 0; i < (int32_t)logits.size(); i++) {
    const double p = exp((logits[i] - most) / temperature);
    all += p;
    if ((i > one && i < other) || (i > other && i < one)) between += p;
  }
  return between / all;
}

static bool nearly_tied(const Target &t, const std::vector<float> &logits, int32_t one, int32_t other) {
  const double temperature = t.sampler.temperature;
  return temperature == 0 ? distance(logits, one, other) < NEAR
                          : mass_between(logits, one, other, temperature) < NEAR;
}

struct Count {
  int same, near_ties, others;
  GuessCounts guesses;
};

static void compare(const Target &t, const int32_t *prompt, const std::vector<int32_t> &plain, Kind kind,
                    int n_guesses, bool always, uint32_t seed, Count *count) {
  Oracle oracle = {};
  oracle.kind = kind, oracle.vocab_size = t.model->config.vocab_size, oracle.seed = seed;
  oracle.n = N_PROMPT + (int)plain.size();
  memcpy(oracle.ids, prompt, N_PROMPT * sizeof *prompt);
  memcpy(oracle.ids + N_PROMPT, plain.data(), plain.size() * sizeof *prompt);
  Drafter drafter = make_drafter(t, &oracle);
  const std::vector<int32_t> got = answer(t, prompt, &drafter, n_guesses, always, &count->guesses);
  drafter_close(&drafter);
  size_t n = 0;
  while (n < plain.size() && n < got.size() && plain[n] == got[n]) n++;
  if (n == plain.size() && n == got.size())
    count->same++;
  else if (n < got.size() && n < plain.size() &&
           nearly_tied(t, logits_after(t, prompt, plain, n), plain[n], got[n]))
    count->near_ties++;
  else
    count->others++;
}

/* Answers are the same up to near ties. At temperature 0.8 there are as many as there are borders between
 * likely tokens, and what comes after one makes right guesses wrong. */
static void check(const char *path, Kind kind, double temperature, const Count &c) {
  const int n = c.same + c.near_ties + c.others;
  const GuessCounts &g = c.guesses;
  const bool same = c.others == 0 && c.near_ties * (temperature == 0 ? 10 : 2) <= n;
  const bool guessed = kind == FROM_TEXT || g.n_guessed > n,
             judged = kind == RIGHT   ? temperature > 0 || g.n_accepted * 10 > g.n_guessed * 7
                      : kind == WRONG ? g.n_accepted * 50 < g.n_guessed + 50
                                      : true;
  printf(
      "%s%s, guesses %s, temperature %.1f: %d answers the same, %d after a near tie, %d others; %lld of %lld "
      "guesses right in %lld steps\n",
      same && guessed && judged ? "" : "FAILED ", path, names[kind], temperature, c.same, c.near_ties,
      c.others, g.n_accepted, g.n_guessed, g.n_steps);
  same &&guessed &&judged ? passed++ : failed++;
}

static void run(const char *path, int n_prompts, int n_answer, const char *draft = NULL) {
  Target t = {};
  const BackendOptions options = {};
  const bool dummy = path[strlen(path) - 1] == '/';
  if (dummy) MUST(model_open_dummy(path, &t.model, &error));
  if (!dummy) MUST(model_open(path, NULL, &t.model, &error));
  if (!dummy) MUST(model_prepare_scales(t.model, 1, &error));
  if (draft) MUST(model_open_draft(draft, t.model, &t.draft, &error));
  if (draft) MUST(model_prepare(t.draft, 1, &error));
  MUST(cuda_backend.load(t.model, &options, &t.loaded, &error));
  Count counts[N_KINDS][2] = {};
  uint32_t seed = 9;
  t.n_answer = n_answer;
  for (int i = 0; i < n_prompts; i++) {
    int32_t prompt[N_PROMPT];
    for (int32_t &id : prompt) id = (int32_t)(number(&seed) % (uint32_t)t.model->config.vocab_size);
    for (int j = 5; j < N_PROMPT && i % 2; j++) prompt[j] = prompt[j - 4]; /* a text that repeats */
    const bool warm = i % 3 == 2 && !dummy; /* random weights give flat distributions: any bit would decide */
    t.sampler = {};
    t.sampler.temperature = warm ? 0.8 : 0, t.sampler.top_p = 1, t.sampler.repetition_penalty = 1;
    t.sampler.seed = (uint64_t)i;
    if (i % 5 == 1) t.sampler.repetition_penalty = 1.1;
    GuessCounts plain_counts = {};
    const std::vector<int32_t> plain = answer(t, prompt, NULL, 0, false, &plain_counts);
    for (int kind = 0; kind < N_KINDS; kind++)
      if ((kind == TRAINED) == (draft != NULL))
        compare(t, prompt, plain, (Kind)kind, 1 + i % 15, kind != FROM_TEXT || i % 4 == 1, seed,
                &counts[kind][warm]);
  }
  for (int kind = 0; kind < N_KINDS; kind++)
    for (int warm = 0; warm < 2; warm++)
      if ((kind == TRAINED) == (draft != NULL) && (warm == 0 || (n_prompts > 2 && !dummy)))
        check(draft ? draft : path, (Kind)kind, warm ? 0.8 : 0, counts[kind][warm]);
  cuda_backend.unload(t.loaded);
  model_close(t.draft);
  model_close(t.model);
}

static void run_trained(const std::string &name, bool few) {
  const std::string drafter = "test/data/drafters/" + name;
  const std::string target = name == "qwen3_5-mtp"        ? drafter
                             : name == "gemma4-assistant" ? "test/data/miniatures/gemma4-bf16"
                                                          : "test/data/drafters/target";
  run(target.c_str(), few ? 1 : 50, few ? 8 : MOST_ANSWER, drafter.c_str());
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
  std::vector<const char *> paths = {"test/data/stories260K-awq",     "test/data/miniatures/qwen3_5-awq",
                                     "test/data/miniatures/lfm2-awq", "test/data/miniatures/gpt-oss-mxfp4",
                                     "test/data/miniatures/gemma4-e", "test/data/configs/Qwen3-0.6B-AWQ/"};
  const bool trained = argc > 1 && strcmp(argv[1], "trained") == 0;
  if (few) paths.resize(1);
  if (argc > 1 && !few) paths.assign(argv + (trained ? 2 : 1), argv + argc);
  for (const char *path : paths)
    run(path, few ? 2 : path[strlen(path) - 1] == '/' ? 15 : 50, few ? 6 : MOST_ANSWER);
  for (const char *name : {"qwen3_5-mtp", "eagle3", "dflash", "gemma4-assistant"})
    if (argc == 1 || trained || (few && name[0] == 'q')) run_trained(name, few);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
