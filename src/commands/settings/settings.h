/* settings.h - the file of settings: $XDG_CONFIG_HOME/auk/config, or ~/.config/auk/config.
 *
 *   m Qwen/Qwen3-8B-AWQ        a flag per line, without its dashes; the value is the rest of the line
 *   temp = 0.7                 a '=' may stand between name and value
 *   stop "\n\n"                a value in double quotes is a JSON string
 *   [coder]                    a section: its lines apply where the model is called "coder", by -m coder,
 *   m ~/models/coder-awq       AUK_MODEL=coder, or "m coder" above. Its own m says which model that is;
 *   no-think                   without one the name is the model.
 *   # a comment                at the beginning of a line only
 *
 * Flags that say how a model answers can be set, not those that say what one command is to do (settable[]).
 * Only commands that share the flag take a setting. A setting gives way to the command line: it is dropped if
 * it may not stand beside a flag given there. From high to low: command line, section, file, environment, the
 * checkpoint. A relative path of a file begins at the folder of the settings; ~/ is the home directory. */
#pragma once

#include "commands/flags.h"

typedef struct {
  const Flag *flag;
  const struct Settable *entry; /* the row of settable[] that has the flag */
  Word name;                    /* as written */
  const char *value;            /* NULL for a switch */
  char *owned;                  /* memory of `value` if it does not point into Settings.text, else NULL */
  size_t line;                  /* from 1 */
  int section;                  /* index; -1: above the first section */
} SettingLine;

typedef struct {
  char *path; /* NULL: the environment names no place */
  Buffer text;
  SettingLine *lines; /* [n_lines] */
  size_t n_lines, lines_capacity;
  const char **sections; /* [n_sections] names */
  size_t n_sections, sections_capacity;
  const SettingLine *model; /* the line that names the model of this command, or NULL */
} Settings;                 /* starts zeroed */

/* Reads the file; without one there are no settings. Mistakes are STATUS_USAGE, "FILE:LINE: ...". Release the
 * settings also after a failure, but not before the command has ended: its options point to their strings. */
Status settings_read(Settings *settings, Error *err);
void settings_release(Settings *settings);

/* True if the command takes any of the flags that can be set, or lists the models that the file names
 * (Interface.lists_models). */
bool settings_matter(const Interface *interface);
/* Sets flags that the command line does not set. With -v each setting is reported on standard error. Refuses
 * -m NAME if no model has this name, and NAME is a section without a model or resembles a section's name. */
Status settings_apply(Settings *settings, FlagParse *parse, Error *err);
/* Puts FILE:LINE before an error about a missing model, if that line names the model. */
void settings_blame(const Settings *settings, Error *err);
/* The model of the file for command lines that name none, or NULL. AUK_MODEL is not consulted. */
const char *settings_model(const Settings *settings);
