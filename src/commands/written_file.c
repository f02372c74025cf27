/* written_file.c - see written_file.h. */
#include "commands/written_file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void take(WrittenFile *file, const struct stat *info) {
  file->is_regular = S_ISREG(info->st_mode);
  file->device = info->st_dev;
  file->inode = info->st_ino;
}

WrittenFile written_file(const char *flag, const char *path) {
  WrittenFile file = {.flag = flag, .path = path};
  struct stat info;
  if (path && strcmp(path, "-") != 0 && stat(path, &info) == 0) take(&file, &info);
  return file;
}

WrittenFile written_standard_output(void) {
  WrittenFile file = {.flag = "standard output"};
  struct stat info;
  if (fstat(STDOUT_FILENO, &info) == 0) take(&file, &info);
  return file;
}

/* Refuses with "-o answer.txt is WHAT, which would be lost", or for standard output "... which would grow for
 * ever". */
static Status refuse(const WrittenFile *file, const char *what, Error *err) {
  if (!file->path)
    return error_set(err, STATUS_USAGE, "%s is %s, which would grow for ever", file->flag, what);
  return error_set(err, STATUS_USAGE, "%s %s is %s, which would be lost", file->flag, file->path, what);
}

Status written_file_is_not(const WrittenFile *file, const char *flag, const char *path, Error *err) {
  struct stat info;
  if (!file->is_regular || !path) return STATUS_OK;
  const bool standard = strcmp(path, "-") == 0;
  if ((standard ? fstat(STDIN_FILENO, &info) : stat(path, &info)) != 0) return STATUS_OK;
  if (info.st_dev != file->device || info.st_ino != file->inode) return STATUS_OK;
  if (standard) return refuse(file, "the file on standard input", err);
  Error what;
  error_set(&what, STATUS_OK, "the file that %s %s reads", flag, path);
  return refuse(file, what.text, err);
}

Status written_file_is_not_model(const WrittenFile *file, const Model *model, Error *err) {
  bool has = false;
  if (!file->is_regular) return STATUS_OK;
  TRY(model_has_file(model, file->device, file->inode, &has, err));
  return has ? refuse(file, "a file of the model itself", err) : STATUS_OK;
}
