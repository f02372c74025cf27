/* get.c - `auk get NAME`: has Hugging Face's own tool download a model, and says whether it will run. auk
 * itself never uses the network.   Called by: main.c through the command table. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/commands.h"
#include "commands/common.h"
#include "commands/model_flags.h"
#include "commands/models/hub.h"

enum { NOT_FOUND = 127 };

/* Runs a program with auk's own streams and waits; meanwhile interrupts are for the program alone. */
static int run_program(char *const argv[]) {
  struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
  sigemptyset(&ignore.sa_mask);
  sigaction(SIGINT, &ignore, &interrupt);
  sigaction(SIGQUIT, &ignore, &quit);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    execvp(argv[0], argv);
    _exit(errno == ENOENT ? NOT_FOUND : 126);
  }
  int how = 0;
  while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR) continue;
  sigaction(SIGINT, &interrupt, NULL);
  sigaction(SIGQUIT, &quit, NULL);
  if (child < 0) return 126;
  return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/* Opens the model and its tokenizer as for an answer, but loads no weights. */
static Status check(const char *name, Error *err) {
  const ModelFlags flags = {.path = name};
  OWNED(model_place_release) ModelPlace place = {0};
  OWNED(model_release) Model *model = NULL;
  OWNED(tokenizer_release) Tokenizer *tokenizer = NULL;
  TRY(model_place_find(&flags, &place, err));
  TRY(model_place_open_known(&place, &flags, &model, err));
  return model_tokenizer_open(model, place.path, &tokenizer, err);
}

/* Subfolders hold the same weights for other programs: openai/gpt-oss-20b has them three times. All files of
 * a checkpoint lie beside config.json, except those of additional_chat_templates/. OTHER_FOLDERS
 * (all folders that do not begin with "a") is one pattern, since hf and its older name take several patterns
 * in different ways. */
#define OTHER_FOLDERS "[!a]*/*"

/* The name in the address of a model's page on Hugging Face, as a browser shows it; or the text. */
static const char *without_site(const char *text) {
  static const char *const schemes[] = {"https://", "http://", ""};
  static const char *const sites[] = {"huggingface.co/", "hf.co/"};
  for (size_t i = 0; i < 6; i++) {
    const size_t scheme = strlen(schemes[i / 2]), site = strlen(sites[i % 2]);
    if (strncmp(text, schemes[i / 2], scheme) == 0 && strncmp(text + scheme, sites[i % 2], site) == 0)
      return text + scheme + site;
  }
  return text;
}

static Status run(CommandCall *call, Error *err) {
  static const char *const programs[] = {"hf", "huggingface-cli"}; /* hf and its older name */
  int how = NOT_FOUND;
  if (call->n_operands == 0)
    return error_set(
        err, STATUS_USAGE,
        "which model? auk get Qwen/Qwen3-0.6B suits a CPU, Qwen/Qwen3-4B-AWQ a GPU of 8 GB, " HUB_EXAMPLE
        " one of 12 GB, openai/gpt-oss-20b 16 GB, Qwen/Qwen3-32B-AWQ 24 GB");
  const char *const text = without_site(call->operands[0]), *const at = strchr(text, '@');
  if (!hub_is_name(text))
    return error_set(err, STATUS_USAGE, "\"%s\" is no name on Hugging Face, expected one like " HUB_EXAMPLE,
                     text);
  char name[128]; /* longer than any name */
  snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "@"), text);
  for (int i = 0; i < 2 && how == NOT_FOUND; i++) {
    char *argv[] = {(char *)programs[i],
                    (char *)"download",
                    name,
                    (char *)"--exclude",
                    (char *)OTHER_FOLDERS,
                    at ? (char *)"--revision" : NULL,
                    at ? (char *)at + 1 : NULL,
                    NULL};
    how = run_program(argv);
  }
  if (how == NOT_FOUND)
    return error_set(err, STATUS_FAILED,
                     "Hugging Face's tool hf is not installed: pip install huggingface_hub, then auk get %s",
                     text);
  if (how == 128 + SIGINT || how == STATUS_INTERRUPTED)
    return error_set(err, STATUS_INTERRUPTED, "interrupted");
  if (how != 0) return error_set(err, STATUS_FAILED, "hf download %s failed (exit status %d)", name, how);
  TRY(check(text, err));
  print_note("auk -m %s runs it", text);
  return STATUS_OK;
}

const Interface get_interface = {
    .usage = "auk get NAME[@REVISION]",
    .about =
        "Downloads a model into Hugging Face's cache by Hugging Face's own tool (hf download NAME, which\n"
        "must be installed; pip install huggingface_hub), without the folders in which some have the same\n"
        "weights for other programs, and says whether it will run. Exit status: 1 the download failed,\n"
        "3 auk refuses the model.",
    .examples = "auk get " HUB_EXAMPLE "\nauk -m " HUB_EXAMPLE " -p \"Hello\"",
    .max_operands = 1,
    .run = run,
};
