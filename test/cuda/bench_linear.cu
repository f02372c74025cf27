/* bench_linear.cu - microseconds of every entry of the dispatch table on the layer shapes of a model. Needs a
 * GPU.
 *
 *   bench_linear [key=value ...]
 *     tokens=1,2,4...     token counts
 *     rows=name,name      entries of the table (all)
 *     shapes=qkv,o,gate_up,down,head     types=4-bit,8-bit,int8,fp16,bf16     group=128
 *     variants=N          the first N tile shapes of each entry as well as its own choice
 *     wide=1              every entry at every count, not only near its own range
 *     dependent=1         programmatic dependent launch
 *     out=FILE            all lines again
 *
 * Weights are rotated over copies that L2 cannot hold, calls are inside one graph, medians of seven replays.
 * "wall" is the larger of bytes at 4,650 GB/s and operations at 830 TFLOP/s, the rates of an H200
 * (LOG.md, "Walls"). */
#include <algorithm>
#include <string.h>
#include <string>
#include <vector>

#include "test/cuda/random_linear.cuh"

static cudaStream_t stream;
static LinearContext *context;

struct Layer {
  const char *name;
  int n_in, n_out;
  bool interleaved;
};

/* Qwen3-8B; the head is dense fp16. */
static const Layer layers[] = {{"qkv", 4096, 6144, false},
                               {"o", 4096, 4096, false},
                               {"gate_up", 4096, 24576, true},
                               {"down", 12288, 4096, false},
                               {"head", 4096, 151936, false}};

static std::vector<std::string> split(const char *text) {
  std::vector<std::string> out;
  std::string s = text;
  for (size_t at = 0; at <= s.size();) {
    size_t comma = std::min(s.find(',', at), s.size());
    out.push_back(s.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

static bool has(const std::vector<std::string> &list, const char *name) {
  return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
}

static double weight_bytes(const DeviceLinear &w) {
  double n = (double)w.n_in * w.n_out;
  if (!weight_is_quantised(w.type)) return n * (w.type == WEIGHT_F32 ? 4 : 2);
  double bits = w.type == WEIGHT_AWQ4 ? 4 : 8;
  return n * bits / 8 + (double)w.n_groups * w.n_out * (2 + bits / 8);
}

/* Median microseconds of one call, or a negative status. */
static double time_calls(std::vector<DeviceLinear> &copies, LinearCall call) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  call.weights = &copies[0];
  Status status = linear_run(context, &call, &error); /* loads the code, and finds out whether it runs */
  if (status != STATUS_OK) return -(double)status;
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (DeviceLinear &w : copies) {
    call.weights = &w;
    status = linear_run(context, &call, &error);
    if (status != STATUS_OK) {
      printf("capture: %s\n", error.text);
      exit(1);
    }
  }
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<float> times;
  for (int i = 0; i < 9; i++) {
    CHECK(cudaEventRecord(a, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(b, stream));
    CHECK(cudaEventSynchronize(b));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    if (i > 1) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(a);
  cudaEventDestroy(b);
  return times[times.size() / 2] * 1e3 / (double)copies.size();
}

/* As many copies of one random matrix as L2 cannot hold. */
static void make_copies(std::vector<DeviceLinear> &out, WeightType type, const Layer &l, int group,
                        double total_bytes) {
  bool interleaved = l.interleaved;
  Stored parts[2];
  int n_parts = interleaved ? 2 : 1;
  for (int i = 0; i < n_parts; i++)
    parts[i] = stored_random(type, l.n_in, l.n_out / n_parts, group, 7 + (uint64_t)i);
  double bytes = stored_weight_bytes(type, (size_t)l.n_in * l.n_out);
  int n = (int)(total_bytes / bytes) + 2;
  out.resize((size_t)n);
  for (DeviceLinear &w : out) {
    place(&w, parts, n_parts, interleaved, NULL, l.name, stream);
    rotate(&w, stream);
  }
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < n_parts; i++) stored_free(&parts[i]);
}

struct Result {
  std::string layer, row;
  int tokens, variant;
  double us;
};

int main(int argc, char **argv) {
  std::vector<std::string> rows_wanted, shapes = {"qkv", "o", "gate_up", "down"}, types = {"4-bit", "fp16"};
  std::vector<int> counts = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  int variants = 0, group = 128;
  bool wide = false, dependent = false;
  const char *out_path = NULL;
  for (int i = 1; i < argc; i++) {
    char *value = strchr(argv[i], '=');
    if (!value) return printf("bench_linear: %s: expected key=value\n", argv[i]), 2;
    *value++ = 0;
    std::string key = argv[i];
    if (key == "tokens") {
      counts.clear();
      for (auto &s : split(value)) counts.push_back(atoi(s.c_str()));
    } else if (key == "rows") {
      rows_wanted = split(value);
    } else if (key == "shapes") {
      shapes = split(value);
    } else if (key == "types") {
      types = split(value);
    } else if (key == "variants") {
      variants = atoi(value);
    } else if (key == "group") {
      group = atoi(value);
    } else if (key == "wide") {
      wide = atoi(value) != 0;
    } else if (key == "dependent") {
      dependent = atoi(value) != 0;
    } else if (key == "out") {
      out_path = value;
    } else {
      return printf("bench_linear: no key %s\n", key.c_str()), 2;
    }
  }
  CHECK(cudaStreamCreate(&stream));
  MUST(linear_open(0, stream, &context, &error));
  int most = *std::max_element(counts.begin(), counts.end());
  __half *x;
  void *y;
  CHECK(cudaMalloc((void **)&x, (size_t)most * 12288 * 2));
  CHECK(cudaMalloc(&y, (size_t)std::max(most, 16) * 24576 * 4 + (size_t)16 * 151936 * 4));
  std::vector<Result> results;
  FILE *out = out_path ? fopen(out_path, "w") : NULL;
  const std::vector<LinearEntry> entries = every_entry();
  for (const Layer &l : layers) {
    if (!has(shapes, l.name)) continue;
    random_activations<<<1024, 256, 0, stream>>>(x, most, l.n_in, l.n_in, 3);
    for (WeightType type : {WEIGHT_AWQ4, WEIGHT_AWQ8, WEIGHT_INT8, WEIGHT_F16, WEIGHT_BF16}) {
      if (!has(types, weight_type_name(type)) || (!strcmp(l.name, "head") && type != WEIGHT_F16)) continue;
      std::vector<DeviceLinear> copies;
      make_copies(copies, type, l, group, 260e6);
      for (int tokens : counts) {
        if (!strcmp(l.name, "head") && tokens > 16) continue;
        for (const LinearEntry &entry : entries) {
          if (!has(rows_wanted, entry.name)) continue;
          if (!wide && (tokens * 2 < entry.from || tokens / 4 > entry.to)) continue;
          double work = (double)tokens * l.n_in * l.n_out;
          if (work > 2e10 && (!strcmp(entry.name, "awq_plain") || !strcmp(entry.name, "awq_pipelined")))
            continue;
          const LinearEntry *chosen;
          if (linear_choice(context, &copies[0], entry.act, tokens, entry.name, &chosen, &error) != STATUS_OK)
            continue;
          MUST(linear_prepare(context, &copies[0], entry.act, tokens, entry.name, &error));
          LinearOutput output = l.interleaved             ? LINEAR_SWIGLU_F16
                                : !strcmp(l.name, "qkv")  ? LINEAR_TO_F16
                                : !strcmp(l.name, "head") ? LINEAR_TO_F32
                                                          : LINEAR_ADD_F32;
          for (int v = 0; v <= variants; v++) {
            LinearCall call = {
                NULL,      x,         l.n_in,     tokens, output, y, l.interleaved ? l.n_out / 2 : l.n_out,
                entry.act, dependent, entry.name, v};
            double us = time_calls(copies, call);
            if (us < 0) {
              if (us == -(double)STATUS_USAGE) continue; /* not a shape for so many tokens */
              printf("%s: %s\n", entry.name, error.text);
              break;
            }
            double bytes = weight_bytes(copies[0]), wall = std::max(bytes / 4650e3, 2 * work / 830e6),
                   wall4 = std::max((double)l.n_in * l.n_out * 0.51953 / 4650e3, 2 * work / 830e6);
            if (strcmp(l.name, "head")) wall = wall4; /* of the quantised layer, also beside the fp16 one */
            std::string name = entry.name;
            if (type != WEIGHT_AWQ4) name += std::string("/") + weight_type_name(type);
            char line[256];
            snprintf(line, sizeof line,
                     "%-8s %5d %-22s %2d %9.2f us %7.0f GB/s %6.1f TFLOP/s  wall %8.2f  x%.2f\n", l.name,
                     tokens, name.c_str(), v, us, bytes / us / 1e3, 2 * work / us / 1e6, wall, us / wall);
            fputs(line, stdout);
            fflush(stdout);
            if (out) fputs(line, out);
            results.push_back({l.name, name, tokens, v, us});
          }
        }
      }
      for (DeviceLinear &w : copies) {
        cudaFree((void *)(w.dense ? w.dense : w.tiles));
        cudaFree((void *)w.rotated);
      }
    }
  }
  if (out) fclose(out);
  linear_close(context);
  return 0;
}
