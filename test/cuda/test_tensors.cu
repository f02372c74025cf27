/* test_tensors.cu - every matrix and vector of every model in test/data as a GPU has it (cuda/one/weights.c):
 *
 *   planned    which linear layers are joined to which DeviceLinear, in which order, with their types, sizes
 *              and groups; the memory for all, and what stays on the host where only 3/4 of that are free
 *   planned 2  the same for the two parts of a model that two GPUs share
 *   loaded     the same with each tensor's offset in the GPU's memory, and a hash of its bytes
 *
 * Drafters and models of test/data/configs are planned only. test/data/transcripts/dumps/gpu.txt has for each
 * model and stage the number of lines of the dump and their hash, or "refused". With GOLDENS=write in the
 * environment the file is written anew. The full dumps of one model, to be compared between two trees:
 *
 *   DUMP=miniatures/qwen3-awq build/emulated-80/test/cuda/test_tensors
 *
 * The layout is the same on every chip. Copies that a chip's kernels want beside it are left out. Needs a
 * GPU, or EMULATE=1; prints `N passed, N failed`. */
#include <dirent.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/cuda/check.cuh"

extern "C" {
#include "base/hash64.h"
#include "cuda/one/table.h"
#include "cuda/one/weights.h"
#include "model/layers.h"
#include "model/slice.h"
#include "test/model/tensor_dump.h"
}

/* A model on the GPU, and the dump of a stage. While it is only planned, all of its pointers are NULL. */
struct Stage {
  Dump *dump;
  const BackendModel *loaded;
};

static void dump_bytes(const Stage &s, const char *name, const void *at, size_t bytes) {
  if (!at || !bytes) return;
  std::vector<char> copy(bytes);
  CHECK(cudaMemcpy(copy.data(), at, bytes, cudaMemcpyDeviceToHost));
  dump_line(s.dump, "  %s at %zu, %016" PRIx64, name,
            (size_t)((const char *)at - (const char *)s.loaded->memory), hash64(copy.data(), bytes, 0));
}

static void dump_numbers(const Stage &s, const char *name, const float *at, int n) {
  if (at) dump_bytes(s, name, at, (size_t)n * sizeof *at);
}

/* The arrays of a matrix are one after another, each in whole units of 256 bytes, which are zeroed. */
static void dump_linear(const Stage &s, int layer, const char *member, const DeviceLinear &w) {
  if (w.n_out == 0) return;
  const int experts = std::max(w.n_experts, 1);
  dump_line(s.dump, "%d %s, %s: %s, %d -> %d, %d groups of %d, stride %zu, %s%s%d experts, %d chosen%s",
            layer, member, w.name, weight_type_name(w.type), w.n_in, w.n_out, w.n_groups, w.group, w.stride,
            w.interleaved ? "interleaved, " : "", w.has_bias ? "bias, " : "", experts, w.n_chosen,
            w.summed ? ", summed" : "");
  const size_t rows = ((size_t)w.n_out + 15) / 16 * 16, inputs = ((size_t)w.n_in + 127) / 128 * 128,
               element = w.type == WEIGHT_F32 ? 4 : 2;
  const char *const scales = (const char *)w.scales, *const end =
                                                         (const char *)(w.zeros ? w.zeros : w.factors);
  const int per_byte = w.type == WEIGHT_AWQ4 || w.type == WEIGHT_FP4 ? 2 : 1;
  dump_bytes(s, "weights", w.tiles, rows * inputs / per_byte);
  dump_bytes(s, "weights", w.dense, rows * w.stride * element);
  dump_bytes(s, "scales", scales, end ? (size_t)(end - scales) : rows * sizeof(float));
  dump_bytes(s, "zeros", w.zeros, rows * (size_t)w.n_groups / per_byte);
  dump_bytes(s, "factors", w.factors, rows * sizeof(float));
  dump_bytes(s, "bias", w.bias, rows * sizeof(float));
}

static void dump_projections(const Stage &s, int layer, const char *member, const DeviceProjections &p) {
  for (int i = 0; i < p.n_parts; i++) {
    dump_line(s.dump, "%d %s, from output %d on:", layer, member, p.first[i]);
    dump_linear(s, layer, member, p.parts[i]);
  }
}

static const char *const layer_linears[] = {
#define LINEAR(SLOT, member, ...) #member,
#include "model/tensors.def"
};
static const char *const layer_vectors[] = {
#define VECTOR(SLOT, member, ...) #member,
#include "model/tensors.def"
};

static void dump_layer(const Stage &s, int i) {
  static const char *const joined[N_JOINED] = {"inputs", "gate and up", "mix of attention", "mix of the MLP"};
  const DeviceLayer &to = s.loaded->layers[i];
  const ModelLayer &from = s.loaded->model->layers[i];
  for (int which = 0; which < N_JOINED; which++) dump_projections(s, i, joined[which], to.joined[which]);
  for (int which = 0; which < N_LAYER_LINEARS; which++)
    dump_linear(s, i, layer_linears[which], to.linear[which]);
  dump_linear(s, i, "key heads", to.key_heads);
  dump_linear(s, i, "value heads", to.value_heads);
  dump_linear(s, i, "gate and up of experts", to.experts.gate_up);
  dump_linear(s, i, "down of experts", to.experts.down);
  for (int which = 0; which < N_LAYER_VECTORS; which++)
    dump_numbers(s, layer_vectors[which], to.vector[which], from.vector[which].n);
  for (int k = SMALL_ROUTER; k <= SMALL_CORRECT; k++) {
    const Linear &small = from.linear[LAYER_ALTUP_ROUTER + k];
    dump_numbers(s, "small", to.small[k], small.n_in * small.n_out);
  }
}

static void dump_model(const Stage &s) {
  const BackendModel &loaded = *s.loaded;
  const Model *model = loaded.model;
  const Matrix &table = model->input_table;
  for (int i = 0; i < N_ROPES; i++)
    dump_numbers(s, "rope", loaded.ropes[i].frequencies, loaded.ropes[i].n_pairs);
  for (int i = 0; i < model->config.n_layers; i++) dump_layer(s, i);
  for (int i = 0; i < loaded.n_ordered; i++) {
    dump_line(s.dump, "order of %s", loaded.ordered[i].matrix->name);
    dump_bytes(s, "order", loaded.ordered[i].order, (size_t)loaded.ordered[i].matrix->n_in * sizeof(int));
  }
  for (int which = 0; which < N_MODEL_LINEARS; which++)
    dump_linear(s, -1, "of the model", loaded.model_linear[which]);
  for (int which = 0; which < N_MODEL_VECTORS; which++) {
    char name[LINEAR_NAME_SIZE];
    model_vector_name(&model->config, "", which, name);
    dump_numbers(s, name, loaded.vector[which], model->vector[which].n);
  }
  dump_bytes(s, "embedding", loaded.embedding,
             (size_t)model->embedding.n_rows * loaded.embedding_stride * dtype_bytes(loaded.embedding_type));
  dump_bytes(s, "input table", loaded.input_table,
             (size_t)table.n_rows * (size_t)table.n_columns * dtype_bytes(table.dtype));
}

static void dump_plan(Dump *dump, const Model *model) {
  BackendModel planned;
  DeviceMemory all, part;
  MUST(weights_plan(model, &planned, &error));
  dump_model({dump, &planned});
  weights_release(&planned);
  MUST(weights_memory(model, 0, &all, &error));
  MUST(weights_memory(model, all.weights / 4 * 3, &part, &error));
  dump_line(dump, "%zu bytes; or %zu and %zu on the host, of %d and %d layers", all.weights, part.weights,
            part.on_host, part.host_experts, part.host_layers);
}

static void dump_planned(Dump *dump, const Model *model) {
  dump_begin(dump, "planned");
  dump_plan(dump, model);
  dump_end(dump, "planned");
  if (model_check_split(model, 2, &error) != STATUS_OK) return;
  dump_begin(dump, "planned 2");
  for (int i = 0; i < 2; i++) {
    Model *part;
    MUST(model_part(model, i, 2, &part, &error));
    dump_plan(dump, part);
    model_part_free(part);
  }
  dump_end(dump, "planned 2");
}

static void dump_loaded(Dump *dump, const Model *model) {
  BackendModel loaded = {};
  BackendOptions options = {};
  loaded.model = model;
  options.n_threads = 1;
  CHECK(cudaStreamCreate(&loaded.stream));
  MUST(weights_load(&loaded, &options, &error));
  dump_begin(dump, "loaded");
  dump_model({dump, &loaded});
  dump_end(dump, "loaded");
  weights_release(&loaded);
  CHECK(cudaStreamDestroy(loaded.stream));
}

static void dump_checkpoint(FILE *out, const std::string &name, bool loads) {
  if (!dump_wants(name.c_str())) return;
  const std::string path = "test/data/" + name;
  Dump dump = {name.c_str(), out, 0, 0};
  Model *model;
  fprintf(out, "%s\n", name.c_str());
  MUST(loads ? model_open(path.c_str(), NULL, &model, &error)
             : model_open_dummy(path.c_str(), &model, &error));
  if (loads) MUST(model_prepare(model, 1, &error));
  if (cuda_check_model(model, &error) != STATUS_OK) {
    fprintf(out, " refused\n");
  } else {
    dump_planned(&dump, model);
    if (loads) dump_loaded(&dump, model);
  }
  model_close(model);
}

/* The head and the embedding of a target's are planned as the drafter's own. */
static void dump_drafter(FILE *out, const char *name, const char *target_name) {
  if (!dump_wants(name)) return;
  const std::string path = std::string("test/data/") + name, of = std::string("test/data/") + target_name;
  Dump dump = {name, out, 0, 0};
  Model *target, *draft;
  fprintf(out, "%s\n", name);
  MUST(model_open(of.c_str(), NULL, &target, &error));
  MUST(model_open_draft(path.c_str(), target, &draft, &error));
  dump_begin(&dump, "planned");
  dump_plan(&dump, draft);
  dump_end(&dump, "planned");
  model_close(draft);
  model_close(target);
}

static void dump_folder(FILE *out, const std::string &folder, bool loads) {
  std::vector<std::string> names;
  DIR *directory = opendir(("test/data/" + folder).c_str());
  while (const dirent *entry = directory ? readdir(directory) : NULL)
    if (entry->d_name[0] != '.') names.push_back(folder + "/" + entry->d_name);
  if (directory) closedir(directory);
  std::sort(names.begin(), names.end());
  for (const std::string &name : names) dump_checkpoint(out, name, loads);
}

static void write_dumps(FILE *out) {
  dump_checkpoint(out, "stories260K-awq", true);
  dump_folder(out, "miniatures", true);
  dump_folder(out, "layouts", true);
  dump_checkpoint(out, "drafters/target", true);
  for (const auto &drafter : dump_drafters) dump_drafter(out, drafter.name, drafter.target);
  dump_folder(out, "configs", false);
}

/* The blocks of a file: the name of a model, and the lines of its stages, which begin with spaces. */
static std::vector<std::string> blocks_of(FILE *file) {
  std::vector<std::string> blocks;
  char line[200];
  while (fgets(line, sizeof line, file))
    if (*line == ' ' && !blocks.empty())
      blocks.back() += line;
    else
      blocks.push_back(line);
  fclose(file);
  return blocks;
}

static FILE *open_golden(const char *mode) {
  FILE *file = fopen("test/data/transcripts/dumps/gpu.txt", mode);
  if (!file) printf("cannot open the transcript (tests run from the repository's root)\n"), exit(1);
  return file;
}

int main() {
  const char *goldens = getenv("GOLDENS");
  if (goldens && strcmp(goldens, "write") == 0) {
    FILE *file = open_golden("w");
    write_dumps(file);
    return fclose(file) != 0;
  }
  FILE *file = tmpfile();
  if (!file) return 1;
  write_dumps(file);
  rewind(file);
  if (dump_printed()) return 0;
  const std::vector<std::string> want = blocks_of(open_golden("r")), got = blocks_of(file);
  const std::string none;
  size_t failed = 0;
  for (size_t i = 0; i < std::max(want.size(), got.size()); i++) {
    const std::string &expected = i < want.size() ? want[i] : none, &found = i < got.size() ? got[i] : none;
    if (expected == found) continue;
    printf("FAILED: expected %sfound %s", expected.c_str(), found.c_str());
    failed++;
  }
  printf("%zu passed, %zu failed\n", got.size() - std::min(failed, got.size()), failed);
  return failed != 0;
}
