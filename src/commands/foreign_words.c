/* foreign_words.c - see foreign_words.h. Called by: main.c, flags.c, chat.c. The words are from llama.cpp,
 * ollama, mlx_lm, vLLM and llm. */
#include "commands/foreign_words.h"

#include "commands/flags.h"

#include <string.h>

typedef struct {
  const char *words, *instead;
} Foreign;

static const Foreign other_commands[] = {
    {"version", "auk --version says which this is"},
    {"list, ls", "auk models lists the models that are here"},
    {"ps, stop, unload, load", "auk keep shows the models that stay in memory, auk keep --stop ends them"},
    {"logs, log, history, sessions",
     "auk chats lists the chats that were kept, auk chats show NAME shows one"},
    {"pull, download", "auk get NAME fetches a model, auk models lists those that are here"},
    {"show, info", "auk inspect MODEL says what is in a model"},
    {"rm, remove, delete, push, cp, create", "models are files: auk models DIR lists them"},
    {"serve, server, api", "there is no server; --map FILE answers many prompts at once"},
    {"generate, prompt, ask, complete", "auk -m MODEL -p TEXT answers a prompt"},
    {"repl, talk", "auk chat -m MODEL is a conversation"},
    {"perplexity, ppl", "auk eval -m MODEL -f FILE gives it"},
    {"convert", "auk quantize MODEL -o DIR makes a checkpoint of 4 bits"},
    {"embed, embeddings", "there are no embeddings here"},
};

static const Foreign other_flags[] = {
    {"-i, --interactive, -if, --interactive-first", "auk chat is a conversation, -p TEXT one answer"},
    {"-hf, -hfr, --hf-repo", "auk get NAME fetches a model, -m NAME takes it from there"},
    {"-hff, --hf-file, -mu, --model-url", "auk get NAME fetches a model, -m NAME takes it from there"},
    {"-q, --quiet, --silent", "standard output has the answer alone; 2>/dev/null drops the rest"},
    {"--format", "--json-schema FILE and --json-object give the answer a form, --json wraps it in an object"},
    {"-ctk, -ctv, --cache-type-k, --cache-type-v", "f16, f32 and q8_0 are known, as of --kv f16|f32|q8"},
    {"-mg, --main-gpu", "--device cpu|cuda and --gpu N say where to compute"},
    {"--reasoning, -rea", "--think and --no-think say it"},
    {"--chat-template-kwargs", "--think and --no-think say enable_thinking"},
    {"--reasoning-format", "--show-thinking and --hide-thinking say where a thought goes"},
    {"-sm, --split-mode, -ts, --tensor-split, -tp, --tensor-parallel-size",
     "--gpu and --split say which GPUs share the work"},
    {"--log-file", "2>FILE keeps what is written to standard error"},
    {"--keepalive", "--keep TIME leaves the model in memory: 90s, 10m, 2h"},
    {"--nowordwrap", "--no-wrap does not wrap lines between words"},
    {"--show-timings, --timings", "-u shows them"},
    {"--stream", "an answer streams unless --no-stream is given"},
    {"--context-shift", "--context-overflow slide forgets the oldest turns of a chat"},
    {"--prompt-cache, --prompt-cache-file", "--cache keeps what prompts begin with"},
    {"--image, --mmproj, --audio", "prompts are text"},
    {"--max-model-len, --num-ctx", "-c N sets the context"},
    {"--gpu-memory-utilization", "--gpu-memory SIZE bounds what a GPU takes"},
    {"--quantization, --dtype", "the model's files say it (auk inspect MODEL)"},
    {"--host, --port", "there is no server; --map FILE answers many prompts at once"},
    {"--mirostat, --typical, --typical-p, --dry-multiplier, --xtc-probability, --top-nsigma, --samplers",
     "--temp, --top-k, --top-p and --min-p say how tokens are drawn"},
    {"--lora, --lora-scaled, --adapter-path", "adapters have to be merged into the model beforehand"},
    {"-e, --escape", "a prompt is taken as it is; a shell's $'a\\nb' has a newline in it"},
};

/* Flags of llama-cli that auk ignores: [ForeignKind]. */
static const char *const idle_flags[] = {
    [FOREIGN_SWITCH] =
        "--jinja, --no-jinja, -st, --single-turn, -cnv, --conversation, --mlock, --no-mmap, --mmap, "
        "--no-display-prompt, --no-warmup, --warmup, --simple-io, --no-perf, --perf, --no-escape, "
        "--log-disable, --no-repack, --no-op-offload, --no-context-shift, --swa-full, --offline, -cb, "
        "--cont-batching, -kvu, --kv-unified, --check-tensors, -cmoe, --cpu-moe, -co, -nkvo, "
        "--no-kv-offload, --verbose-prompt, --trust-remote-code",
    [FOREIGN_VALUE] =
        "-ngl, --gpu-layers, --n-gpu-layers, -b, --batch-size, -ub, --ubatch-size, -tb, --threads-batch, "
        "-dev, -ot, --override-tensor, -ncmoe, --n-cpu-moe, --prio, --poll, --numa, -lv, --log-verbosity, "
        "--verbosity, -dt, --defrag-thold, --cache-reuse",
    [FOREIGN_ON_OFF] = "-fa, --flash-attn, --color, --log-colors, -fit, --fit",
};

static const struct {
  const char *flags, *value, *own, *own_value;
} translated_flags[] = {
    {"-ctk, -ctv, --cache-type-k, --cache-type-v", "q8_0", "--kv", "q8"},
    {"-ctk, -ctv, --cache-type-k, --cache-type-v", "f16", "--kv", "f16"},
    {"-ctk, -ctv, --cache-type-k, --cache-type-v", "f32", "--kv", "f32"},
};

static const Foreign other_chat_words[] = {
    {"model, models, use, switch", "auk chat --continue -m MODEL goes on with another model"},
    {"history, messages, context", "/tokens lists the messages"},
    {"show, info, config, settings", "/set lists settings, /tokens the messages, /stats the speed"},
    {"multiline, multi, paste", "Alt-Enter puts a newline in, and so do lines between \"\"\" and \"\"\""},
    {"file, open, attach, add", "/read FILE puts a file in front of your next message"},
    {"write, export", "/save FILE writes the conversation"},
    {"redo, again", "/regen gives another answer"},
    {"think, nothink, no-think", "/set think on or off"},
    {"temp, temperature, seed, parameter", "/set NAME VALUE, such as /set temp 0.8"},
    {"copy", "what your terminal copies is the answer's own text"},
    {"prompt, role", "/system TEXT sets the system message"},
};

static bool has(const char *words, const char *word, size_t size) {
  Word name;
  while (flag_next_name(&words, &name))
    if (name.size == size && memcmp(name.text, word, size) == 0) return true;
  return false;
}

static const char *find(const Foreign *list, size_t n, const char *word, size_t size) {
  for (size_t i = 0; i < n; i++)
    if (has(list[i].words, word, size)) return list[i].instead;
  return NULL;
}

const char *foreign_command(const char *word) {
  return find(other_commands, sizeof other_commands / sizeof *other_commands, word, strlen(word));
}

const char *foreign_chat_word(const char *word, size_t size) {
  return find(other_chat_words, sizeof other_chat_words / sizeof *other_chat_words, word, size);
}

const char *foreign_flag(const char *flag, size_t size) {
  return find(other_flags, sizeof other_flags / sizeof *other_flags, flag, size);
}

ForeignKind foreign_idle(const char *flag, size_t size) {
  for (ForeignKind kind = FOREIGN_SWITCH; kind <= FOREIGN_ON_OFF; kind++)
    if (has(idle_flags[kind], flag, size)) return kind;
  return FOREIGN_OTHER;
}

bool foreign_translate(const char *flag, size_t size, const char *value, const char **own,
                       const char **own_value) {
  for (size_t i = 0; i < sizeof translated_flags / sizeof *translated_flags; i++) {
    *own = translated_flags[i].own;
    *own_value = translated_flags[i].own_value;
    if (strcmp(value, translated_flags[i].value) == 0 && has(translated_flags[i].flags, flag, size))
      return true;
  }
  return false;
}
