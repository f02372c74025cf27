/* test_guesses.cu - answers with guessed tokens are those without: guesses that are right, wrong and half
 * right, from the text, of a draft model that is the model itself, and of each kind of trained drafter, also
 * for four prompts at once. A step of several rows does not give the bits of a step of one, so two tokens
 * whose logits nearly tie may change places: such answers are counted, and compared up to there.
 *
 * usage: test_guesses [few | N[,I/K] [MODEL...]] (N prompts each, 50 by default, of them the I-th of K parts:
 * several processes side by side take all; MODEL/: a folder with config.json alone, for random weights; a
 * folder of test/data/drafters: that drafter); prints `N passed, N failed`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

extern "C" {
#include "cuda/one/table.h"
#include "engine/drafters/draft_model.h"
#include "engine/drafters/draft_text.h"
#include "engine/drafters/published.h"
#include "engine/engine.h"
#include "engine/one.h"
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
static int part = 1, n_parts = 1; /* of each model's prompts */

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
  BackendModel *loaded, *loaded_draft;
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

static PublishedOptions published_options(const Target &t) {
  static const BackendOptions on_the_gpu = {};
  PublishedOptions options = {};
  options.backend = &cuda_backend, options.backend_options = &on_the_gpu;
  options.target = t.model, options.loaded_target = t.loaded, options.model = t.draft;
  options.loaded = t.loaded_draft;
  options.n_ctx = N_CTX, options.kv = KV_F16, options.cost = 1e-9;
  return options;
}

/* The model itself guesses by a draft model's rule; else the oracle or the text does. */
static Drafter make_drafter(const Target &t, Oracle *oracle) {
  Drafter drafter = {};
  if (oracle->kind == FROM_TEXT) {
    MUST(draft_text_open(N_CTX, &drafter, &error));
  } else if (oracle->kind == TRAINED) {
    const PublishedOptions options = published_options(t);
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
  MUST(session_sync(session, prompt, N_PROMPT, &error));
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
  MUST(session_sync(session, text.data(), (int)text.size(), &error));
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

/* Counts an answer with guesses, `got`, beside the one without. */
static void count_answer(const Target &t, const int32_t *prompt, const std::vector<int32_t> &plain,
                         const std::vector<int32_t> &got, Count *count) {
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
  count_answer(t, prompt, plain, got, count);
}

/* --- four prompts at once */

struct Together {
  Target target;
  Kind kind;
  size_t n_asked;
  std::vector<std::vector<int32_t>> prompts, plain, got;
  std::vector<SamplerSettings> samplers;
  GuessCounts guesses;
};

static Status open_one(void *user, int, Drafter *drafter, Error *) {
  Together *all = (Together *)user;
  Oracle oracle = {};
  oracle.kind = all->kind;
  *drafter = make_drafter(all->target, &oracle);
  return STATUS_OK;
}

static Status next_request(void *user, bool, EngineRequest *request, bool *found, Error *) {
  Together *all = (Together *)user;
  *found = all->n_asked < all->prompts.size();
  if (!*found) return STATUS_OK;
  const size_t at = all->n_asked++;
  *request = {};
  request->ids = all->prompts[at].data(), request->n_ids = N_PROMPT, request->sampler = &all->samplers[at];
  request->generate.max_tokens = all->target.n_answer;
  request->sink = hear, request->user = &all->got[at];
  return STATUS_OK;
}

static Status take_result(void *user, const EngineRequest *, const EngineResult *result, Error *err) {
  Together *all = (Together *)user;
  all->guesses.n_steps += result->generated.guesses.n_steps;
  all->guesses.n_guessed += result->generated.guesses.n_guessed;
  all->guesses.n_accepted += result->generated.guesses.n_accepted;
  return result->status ? error_set(err, result->status, "%s", result->error.text) : STATUS_OK;
}

/* Answers all prompts four at a time, where the answers alone are known. */
static void compare_together(Together *all, Count counts[2]) {
  BatchOptions options = {};
  EngineJob job = {};
  Engine *engine;
  options.n_sequences = options.n_drafters = 4, options.n_ctx = N_CTX, options.n_guesses = 7;
  options.guess_always = true;
  options.draft.open = open_one, options.draft.user = all;
  options.draft.bytes = [](const void *, int) { return (size_t)0; };
  if (all->kind == TRAINED) options.draft.taps = published_taps(&all->target.draft->config.draft);
  job.next = next_request, job.done = take_result, job.user = all;
  all->got.resize(all->prompts.size());
  EngineOptions whole = {};
  whole.batch = &options;
  MUST(engine_open(&cuda_backend, all->target.loaded, all->target.model, &whole, &engine, &error));
  MUST(engine_run(engine, &job, &error));
  engine_close(engine);
  for (size_t i = 0; i < all->prompts.size(); i++) {
    all->target.sampler = all->samplers[i];
    count_answer(all->target, all->prompts[i].data(), all->plain[i], all->got[i],
                 &counts[all->samplers[i].temperature > 0]);
  }
  counts[0].guesses = counts[1].guesses = all->guesses;
}

/* True if several sequences at once have guesses of such drafters. */
static bool guesses_for_many(const Target &t) {
  return !config_has_states(&t.model->config) && (!t.draft || t.draft->config.draft.kind != DRAFT_ASSISTANT);
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
  if (draft) {
    const PublishedOptions of_draft = published_options(t);
    MUST(published_load(&of_draft, &t.loaded_draft, &error));
  }
  Count counts[N_KINDS][2] = {}, together[2] = {};
  Together all = {};
  uint32_t seed = 9;
  t.n_answer = n_answer;
  for (int i = 0; i < n_prompts; i++) {
    int32_t prompt[N_PROMPT];
    for (int32_t &id : prompt) id = (int32_t)(number(&seed) % (uint32_t)t.model->config.vocab_size);
    for (int j = 5; j < N_PROMPT && i % 2; j++) prompt[j] = prompt[j - 4]; /* a text that repeats */
    if (i < n_prompts * (part - 1) / n_parts || i >= n_prompts * part / n_parts) continue;
    const bool warm = i % 3 == 2 && !dummy; /* random weights give flat distributions: any bit would decide */
    t.sampler = {};
    t.sampler.temperature = warm ? 0.8 : 0, t.sampler.top_p = 1, t.sampler.repetition_penalty = 1;
    t.sampler.seed = (uint64_t)i;
    if (i % 5 == 1) t.sampler.repetition_penalty = 1.1;
    GuessCounts plain_counts = {};
    const std::vector<int32_t> plain = answer(t, prompt, NULL, 0, false, &plain_counts);
    all.prompts.emplace_back(prompt, prompt + N_PROMPT), all.plain.push_back(plain);
    all.samplers.push_back(t.sampler);
    for (int kind = 0; kind < N_KINDS; kind++)
      if ((kind == TRAINED) == (draft != NULL))
        compare(t, prompt, plain, (Kind)kind, 1 + i % 15, kind != FROM_TEXT || i % 4 == 1, seed,
                &counts[kind][warm]);
  }
  for (int kind = 0; kind < N_KINDS; kind++)
    for (int warm = 0; warm < 2; warm++)
      if ((kind == TRAINED) == (draft != NULL) && (warm == 0 || (n_prompts > 2 && !dummy)))
        check(draft ? draft : path, (Kind)kind, warm ? 0.8 : 0, counts[kind][warm]);
  if (guesses_for_many(t) && n_prompts > 2 && !dummy) {
    all.target = t, all.kind = draft ? TRAINED : OF_ITSELF;
    compare_together(&all, together);
    for (int warm = 0; warm < 2; warm++)
      check((std::string(draft ? draft : path) + ", four at once").c_str(), all.kind, warm ? 0.8 : 0,
            together[warm]);
  }
  if (draft) cuda_backend.unload(t.loaded_draft);
  cuda_backend.unload(t.loaded);
  model_close(t.draft);
  model_close(t.model);
}

/* path: a folder of test/data/drafters. */
static void run_trained(const std::string &path, int n_prompts, int n_answer) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::string target = name == "qwen3_5-mtp"        ? path
                             : name == "gemma4-assistant" ? "test/data/miniatures/gemma4-bf16"
                                                          : "test/data/drafters/target";
  run(target.c_str(), n_prompts, n_answer, path.c_str());
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  std::vector<std::string> paths = {"test/data/stories260K-awq",     "test/data/miniatures/qwen3_5-awq",
                                    "test/data/miniatures/lfm2-awq", "test/data/miniatures/gpt-oss-mxfp4",
                                    "test/data/miniatures/gemma4-e", "test/data/configs/Qwen3-0.6B-AWQ/"};
  const std::string drafters = "test/data/drafters/";
  for (const char *name : {"qwen3_5-mtp", "eagle3", "dflash", "gemma4-assistant"})
    paths.push_back(drafters + name);
  const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
  if (few) setenv("EMULATED_SMS", "8", 0); /* few blocks, of many steps each */
  int n_prompts = 50;
  if (argc > 1 && !few) sscanf(argv[1], "%d,%d/%d", &n_prompts, &part, &n_parts);
  if (few) paths = {"test/data/stories260K-awq", drafters + "qwen3_5-mtp"};
  if (argc > 2) paths.assign(argv + 2, argv + argc);
  for (const std::string &path : paths) {
    const bool trained = path.compare(0, drafters.size(), drafters) == 0, dummy = path.back() == '/';
    const int n = few     ? trained ? 1 : 2
                  : dummy ? n_prompts / 3
                          : n_prompts,
              n_answer = few ? trained ? 8 : 6 : MOST_ANSWER;
    if (trained)
      run_trained(path, n, n_answer);
    else
      run(path.c_str(), n, n_answer);
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
