/* foreign_words.c - see foreign_words.h.   Called by: main.c, flags.c, chat.c. The words are from llama.cpp,
 * ollama, mlx_lm, vLLM and llm in 2026. */
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
    {"convert, quantize", "auk pack MODEL -o FILE makes a packed file of an AWQ checkpoint"},
    {"embed, embeddings", "there are no embeddings here"},
};

static const Foreign other_flags[] = {
    {"-ngl, --gpu-layers, --n-gpu-layers",
     "the GPU takes all layers that fit; --gpu-memory SIZE lets it take less, --device cpu none"},
    {"-cnv, --conversation, -i, --interactive", "auk chat is a conversation, -p TEXT one answer"},
    {"-st, --single-turn", "-p TEXT gives one answer"},
    {"--jinja, --no-jinja", "the model's own template is always used, --chat-template names another"},
    {"-hf, -hfr, --hf-repo", "auk get NAME fetches a model, -m NAME takes it from there"},
    {"-hff, --hf-file, -mu, --model-url", "auk get NAME fetches a model, -m NAME takes it from there"},
    {"-q, --quiet, --silent, --log-disable",
     "standard output has the answer alone; 2>/dev/null drops the rest"},
    {"--format", "--json-schema FILE and --json-object give the answer a form, --json wraps it in an object"},
    {"-fa, --flash-attn, --no-mmap, --mlock, -b, --batch-size, -ub, --ubatch-size",
     "auk needs no such setting"},
    {"-ctk, -ctv, --cache-type-k, --cache-type-v", "--kv f16|f32|q8 says how keys and values are kept"},
    {"-dev, -mg, --main-gpu", "--device cpu|cuda and --gpu N say where to compute"},
    {"--reasoning, -rea", "--think and --no-think say it"},
    {"--show-timings, --timings", "-u shows them"},
    {"--stream", "an answer streams unless --no-stream is given"},
    {"--context-shift", "--context-overflow slide forgets the oldest turns of a chat"},
    {"--prompt-cache, --prompt-cache-file", "--cache keeps what prompts begin with"},
    {"--image, --mmproj, --audio", "prompts are text"},
    {"--lora, --adapter-path", "adapters have to be merged into the model beforehand"},
    {"-e, --escape, --no-escape", "a prompt is taken as it is; a shell's $'a\\nb' has a newline in it"},
    {"--color, -co", "a terminal gets colours, unless NO_COLOR is set"},
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

static const char *find(const Foreign *list, size_t n, const char *word, size_t size) {
  for (size_t i = 0; i < n; i++) {
    Word name;
    for (const char *at = list[i].words; flag_next_name(&at, &name);)
      if (name.size == size && memcmp(name.text, word, size) == 0) return list[i].instead;
  }
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
