/* test_hf_directory.c - a Hugging Face directory as a Model: every tensor where it belongs, and the message
 * of every directory that is refused. */
#include <math.h>

#include "test/tests.h"
#include "test/transcript.h"
#include "tiny_checkpoint.h"

/* --- what is taken */

static void assert_data(Tiny *tiny, const char *name, const void *data, int *n_used) {
  const TinyTensor *tensor = tiny_find(tiny, name);
  assert_non_null(data);
  assert_memory_equal(data, tensor->data, tensor->bytes);
  ++*n_used;
}

static void assert_linear(Tiny *tiny, const Linear *linear, int group, int *n_used) {
  char name[128];
  assert_int_equal(linear->kind, LINEAR_AWQ);
  assert_int_equal(linear->group, group);
  snprintf(name, sizeof name, "%s.qweight", linear->name);
  assert_int_equal(tiny_find(tiny, name)->shape[0], linear->n_in);
  assert_int_equal(tiny_find(tiny, name)->shape[1] * 8, linear->n_out);
  assert_data(tiny, name, linear->qweight, n_used);
  snprintf(name, sizeof name, "%s.qzeros", linear->name);
  assert_data(tiny, name, linear->qzeros, n_used);
  snprintf(name, sizeof name, "%s.scales", linear->name);
  assert_data(tiny, name, linear->scales, n_used);
  if (!linear->bias.data) return;
  snprintf(name, sizeof name, "%s.bias", linear->name);
  assert_int_equal(linear->bias.n, linear->n_out);
  assert_data(tiny, name, linear->bias.data, n_used);
}

/* Every tensor of the tiny model is where the Model says; gives how many that were. */
static int assert_model(Tiny *tiny, const Model *model) {
  int n_used = 0;
  char name[128];
  assert_data(tiny, "model.embed_tokens.weight", model->embedding.data, &n_used);
  assert_int_equal(model->embedding.n_rows, tiny->vocab_size);
  assert_int_equal(model->embedding.n_columns, tiny->hidden);
  assert_data(tiny, "model.norm.weight", model->final_norm.data, &n_used);
  for (int i = 0; i < tiny->n_layers; i++) {
    const ModelLayer *layer = &model->layers[i];
    const struct {
      const char *name;
      const Vector *vector;
      int n;
    } norms[] = {{"input_layernorm", &layer->attn_norm, tiny->hidden},
                 {"post_attention_layernorm", &layer->mlp_norm, tiny->hidden},
                 {"self_attn.q_norm", &layer->q_norm, tiny->head_dim},
                 {"self_attn.k_norm", &layer->k_norm, tiny->head_dim}};
    for (int n = 0; n < (tiny->qk_norm ? 4 : 2); n++) {
      snprintf(name, sizeof name, "model.layers.%d.%s.weight", i, norms[n].name);
      assert_int_equal(norms[n].vector->n, norms[n].n);
      assert_data(tiny, name, norms[n].vector->data, &n_used);
    }
    if (!tiny->qk_norm) assert_null(layer->q_norm.data);
    for (int which = 0; which < N_PACKED_LINEARS; which++) {
      const Linear *linear = layer_linear(layer, which);
      assert_true(strstr(linear->name, layer_linear_name(which)) != NULL);
      assert_linear(tiny, linear, tiny->group > 0 ? tiny->group : linear->n_in, &n_used);
    }
  }
  if (tiny->tied)
    assert_ptr_equal(model->head.weight, model->embedding.data);
  else
    assert_data(tiny, "lm_head.weight", model->head.weight, &n_used);
  assert_int_equal(model->head.n_in, tiny->hidden);
  assert_int_equal(model->head.n_out, tiny->vocab_size);
  return n_used;
}

static size_t total_bytes(const Tiny *tiny) {
  size_t bytes = 0;
  for (int i = 0; i < tiny->n_tensors; i++) bytes += tiny->tensors[i].bytes;
  return bytes;
}

TEST(takes_each_architecture) {
  static void (*const makers[])(Tiny *) = {tiny_qwen3, tiny_llama, tiny_qwen2};
  for (int i = 0; i < 3; i++) {
    Tiny tiny;
    makers[i](&tiny);
    char *directory = write_tiny(&tiny);
    Model *model = open_fine(directory, NULL);
    assert_int_equal(model->layout, LAYOUT_HF_DIRECTORY);
    assert_string_equal(model->config.architecture, tiny.architecture);
    assert_int_equal(assert_model(&tiny, model), tiny.n_tensors);
    assert_int_equal(model->weight_bytes, total_bytes(&tiny));
    assert_int_equal(model->unused_tensors, 0);
    assert_int_equal(model_tensor_count(model), tiny.n_tensors);
    assert_string_equal(model->theta_source, "config.json");
    assert_null(model->tokenizer_path);
    model_close(model);
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* The data begins at each residue modulo 8, and so do its tensors: nothing may need alignment. */
TEST(takes_data_at_any_alignment) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = make_directory();
  write_config(&tiny, directory);
  for (int spaces = 0; spaces < 8; spaces++) {
    write_tensors(&tiny, 0, tiny.n_tensors, spaces, directory, "model.safetensors");
    Model *model = open_fine(directory, NULL);
    assert_int_equal(assert_model(&tiny, model), tiny.n_tensors);
    model_close(model);
  }
  remove_directory(directory);
  tiny_free(&tiny);
}

/* An index of this text, with the first half of the tensors in a.safetensors and the others in
 * b.safetensors. */
static char *write_shards(const Tiny *tiny, const char *first, const char *second) {
  char *directory = make_directory();
  write_config(tiny, directory);
  int half = tiny->n_tensors / 2;
  write_tensors(tiny, 0, half, 1, directory, "a.safetensors");
  write_tensors(tiny, half, tiny->n_tensors, 2, directory, "b.safetensors");
  Buffer index = {0};
  buffer_append_string(&index, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {", NULL);
  /* Alternating, as no real index does, so that shards are found again. */
  for (int i = 0; i < half; i++) {
    buffer_printf(&index, NULL, "\"%s\": \"%s\", ", tiny->tensors[i].name, first);
    buffer_printf(&index, NULL, "\"%s\": \"%s\", ", tiny->tensors[half + i].name, second);
  }
  if (tiny->n_tensors % 2)
    buffer_printf(&index, NULL, "\"%s\": \"%s\", ", tiny->tensors[tiny->n_tensors - 1].name, second);
  index.size -= 2;
  buffer_append_string(&index, "}}", NULL);
  write_file(directory, "model.safetensors.index.json", index.data, index.size);
  buffer_release(&index);
  return directory;
}

TEST(takes_shards) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  char *directory = write_shards(&tiny, "a.safetensors", "b.safetensors");
  Model *model = open_fine(directory, NULL);
  assert_int_equal(assert_model(&tiny, model), tiny.n_tensors);
  assert_int_equal(model->unused_tensors, 0);
  assert_int_equal(model_tensor_count(model), tiny.n_tensors);
  assert_contains(model_tensor(model, 0)->file, "a.safetensors");
  assert_contains(model_tensor(model, model_tensor_count(model) - 1)->file, "b.safetensors");
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* model.safetensors goes before an index, as in transformers. */
TEST(prefers_the_single_file) {
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = write_tiny(&tiny);
  write_text(directory, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"none.safetensors\"}}");
  model_close(open_fine(directory, NULL));
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(takes_dense_layers_and_other_dtypes) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  tiny_make_dense(&tiny, "model.layers.0.mlp.down_proj", "BF16");
  tiny_make_dense(&tiny, "model.layers.1.self_attn.o_proj", "F32");
  tiny_replace(&tiny, "model.embed_tokens.weight", "BF16", 2, 40, 32);
  tiny_replace(&tiny, "model.norm.weight", "F32", 1, 32, 1);
  tiny_replace(&tiny, "lm_head.weight", "F32", 2, 40, 32);
  char *directory = write_tiny(&tiny);
  Model *model = open_fine(directory, NULL);
  const Linear *down = &model->layers[0].down, *o = &model->layers[1].o;
  assert_int_equal(down->kind, LINEAR_DENSE);
  assert_int_equal(down->dtype, DTYPE_BF16);
  assert_int_equal(down->n_in, 48);
  assert_int_equal(down->n_out, 32);
  assert_memory_equal(down->weight, tiny_find(&tiny, "model.layers.0.mlp.down_proj.weight")->data,
                      48 * 32 * 2);
  assert_int_equal(o->dtype, DTYPE_F32);
  assert_int_equal(model->layers[1].down.kind, LINEAR_AWQ);
  assert_int_equal(model->embedding.dtype, DTYPE_BF16);
  assert_int_equal(model->final_norm.dtype, DTYPE_F32);
  assert_int_equal(model->head.dtype, DTYPE_F32);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(takes_one_group_for_the_whole_input) {
  Tiny tiny;
  tiny_qwen3(&tiny);
  tiny_free(&tiny);
  tiny.group = -1;
  tiny_make(&tiny);
  char *directory = write_tiny(&tiny);
  Model *model = open_fine(directory, NULL);
  assert_int_equal(assert_model(&tiny, model), tiny.n_tensors);
  assert_int_equal(model->layers[0].q.group, 32);
  assert_int_equal(model->layers[0].down.group, 48);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* A bias that no architecture demands is used where it is; leftovers are counted and left alone. */
TEST(takes_optional_biases_and_leftovers) {
  Tiny tiny;
  tiny_llama(&tiny);
  tiny_add(&tiny, "model.layers.1.mlp.down_proj.bias", "F32", 1, 32, 1);
  tiny_add(&tiny, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 1, 8, 1);
  TinyTensor *copy = tiny_add(&tiny, "lm_head.weight", "F16", 2, 40, 32); /* of a model that is tied */
  memcpy(copy->data, tiny_find(&tiny, "model.embed_tokens.weight")->data, copy->bytes);
  tiny_add(&tiny, "something.else", "F8_E4M3", 1, 3, 1);
  tiny_add(&tiny, "model.layers.0.self_attn.k_proj.output_scale", "F32", 1, 1, 1);
  TinyTensor *zeros = tiny_add(&tiny, "model.layers.0.mlp.experts.0.up_proj.bias", "F16", 1, 48, 1);
  memset(zeros->data, 0,
         zeros->bytes); /* AutoGPTQ gives them to every linear layer, also where none is read */
  tiny_add(&tiny, "model.layers.9.enorm.weight", "F16", 1, 32, 1); /* a layer that predicts a further token */
  tiny_add(&tiny, "model.layers.9.mlp.up_proj.weight", "F16", 2, 48, 32);
  char *directory = write_tiny(&tiny);
  Model *model = open_fine(directory, NULL);
  assert_int_equal(model->layers[1].down.bias.n, 32);
  assert_int_equal(model->layers[1].down.bias.dtype, DTYPE_F32);
  assert_null(model->layers[0].down.bias.data);
  assert_ptr_equal(model->head.weight, model->embedding.data);
  assert_int_equal(model->unused_tensors, 7);
  assert_int_equal(model_tensor_count(model), tiny.n_tensors);
  int unused = 0;
  for (size_t i = 0; i < model_tensor_count(model); i++) unused += !model_tensor(model, i)->used;
  assert_int_equal(unused, 7);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(finds_the_tokenizer) {
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = write_tiny(&tiny);
  write_text(directory, "tokenizer.model", "");
  OPEN_REFUSED(directory, NULL, STATUS_MODEL, directory, "only tokenizer.model", "expected tokenizer.json",
               "save_pretrained", "--tokenizer");
  const ModelOverrides overrides = {.tokenizer = "elsewhere.json"};
  Model *model = open_fine(directory, &overrides);
  assert_string_equal(model->tokenizer_path, "elsewhere.json");
  model_close(model);
  write_text(directory, "tokenizer.json", "{}");
  model = open_fine(directory, NULL);
  assert_string_equal(model->tokenizer_path, in_directory(directory, "tokenizer.json"));
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
}

/* --- what is refused: directories and files */

TEST(refuses_paths) {
  char *directory = make_directory();
  OPEN_REFUSED(in_directory(directory, "none"), NULL, STATUS_MODEL, "none", "No such file");
  OPEN_REFUSED(directory, NULL, STATUS_MODEL, "config.json");
  write_text(directory, "config.json", "{\"architectures\": [\"BertModel\"]}");
  OPEN_REFUSED(directory, NULL, STATUS_MODEL, "config.json", "BertModel");
  remove_directory(directory);
}

TEST(refuses_overrides) {
  Tiny tiny;
  tiny_llama(&tiny);
  char *directory = write_tiny(&tiny);
  OPEN_REFUSED(directory, &(ModelOverrides){.rope_theta = 1e6}, STATUS_USAGE, directory, "--rope-theta",
               "config.json");
  OPEN_REFUSED(directory, &(ModelOverrides){.norm_eps = 1e-6}, STATUS_USAGE, directory, "--norm-eps");
  OPEN_REFUSED(directory, &(ModelOverrides){.norm_eps = -1}, STATUS_USAGE, "--norm-eps is -1");
  OPEN_REFUSED(directory, &(ModelOverrides){.norm_eps = INFINITY}, STATUS_USAGE, "--norm-eps is inf");
  OPEN_REFUSED(directory, &(ModelOverrides){.rope_theta = NAN}, STATUS_USAGE, "--rope-theta is");
  OPEN_REFUSED(directory, &(ModelOverrides){.rope_theta = INFINITY}, STATUS_USAGE, "--rope-theta is inf");
  remove_directory(directory);
  tiny_free(&tiny);
}

static void print_opened(const char *directory, FILE *out) {
  Model *model;
  Error err = {{0}};
  const Status status = model_open(directory, NULL, &model, &err);
  fprintf(out, "    status %d: ", status);
  print_refusal(out, err.text, directory);
  model_close(model);
}

/* test/data/transcripts/directories: "new" is a directory with a config alone, "file NAME TEXT" puts a file
 * into it, and "shards FIRST SECOND" is another one, with an index of both files. Each is opened. */
static void write_directories(const char *old, FILE *out) {
  char line[TRANSCRIPT_LINE], *directory = make_directory();
  Tiny tiny;
  tiny_llama(&tiny);
  while (transcript_next_line(&old, line)) {
    char name[100] = "", second[100] = "";
    int n = 0;
    if (*line == ' ') continue;
    fprintf(out, "%s\n", line);
    if (*line == '#') continue;
    if (strcmp(line, "new") == 0) {
      remove_directory(directory);
      directory = make_directory();
      write_config(&tiny, directory);
      continue;
    }
    if (sscanf(line, "file %99s%n", name, &n) == 1) write_text(directory, name, line + n + (line[n] == ' '));
    if (strncmp(line, "shards ", 7) == 0) {
      /* The first may be empty. */
      if (sscanf(line, "shards \"%99[^\"]\" \"%99[^\"]\"", name, second) != 2)
        assert_int_equal(sscanf(line, "shards \"\" \"%99[^\"]\"", second), 1);
      remove_directory(directory);
      directory = write_shards(&tiny, name, second);
    }
    print_opened(directory, out);
  }
  remove_directory(directory);
  tiny_free(&tiny);
}

TEST(directories_are_refused_as_their_transcript_says) {
  check_transcripts("test/data/transcripts/directories", write_directories);
}

/* --- what is refused: tensors */

TEST(refuses_every_missing_tensor) {
  Tiny tiny;
  tiny_qwen2(&tiny);
  int n = tiny.n_tensors;
  for (int i = 0; i < n; i++) {
    char name[128];
    snprintf(name, sizeof name, "%s", tiny.tensors[i].name);
    tiny_remove(&tiny, name);
    /* Without its qweight a layer looks dense, and it is the weight that is missing. */
    char *qweight = strstr(name, ".qweight");
    if (qweight) strcpy(qweight, ".weight");
    char part[256];
    snprintf(part, sizeof part, "model.safetensors: tensor %s is missing", name);
    ASSERT_REFUSED(&tiny, part);
    tiny_make(&tiny);
  }
  tiny_free(&tiny);
}

TEST(refuses_every_other_shape) {
  Tiny tiny;
  tiny_qwen2(&tiny);
  for (int i = 0; i < tiny.n_tensors; i++) {
    TinyTensor *t = &tiny.tensors[i];
    char name[96], part[256];
    snprintf(name, sizeof name, "%s", t->name);
    int64_t rows = t->shape[0], columns = t->shape[1];
    if (t->rank == 2) {
      snprintf(part, sizeof part, "tensor %s is [%d, %d], expected [%d, %d]", name, (int)rows,
               (int)columns + 1, (int)rows, (int)columns);
      tiny_replace(&tiny, name, t->dtype, 2, rows, columns + 1);
    } else {
      snprintf(part, sizeof part, "tensor %s is [1, %d], expected [%d]", name, (int)rows, (int)rows);
      tiny_replace(&tiny, name, t->dtype, 2, 1, rows);
    }
    ASSERT_REFUSED(&tiny, part);
    tiny_make(&tiny);
  }
  tiny_free(&tiny);
}

TEST(refuses_every_other_dtype) {
  Tiny tiny;
  tiny_qwen2(&tiny);
  for (int i = 0; i < tiny.n_tensors; i++) {
    TinyTensor *t = &tiny.tensors[i];
    char name[96], part[256];
    snprintf(name, sizeof name, "%s", t->name);
    bool words = strcmp(t->dtype, "I32") == 0;
    const char *other = words ? "F32" : "U8";
    snprintf(part, sizeof part, "tensor %s is %s, expected %s", name, other,
             words ? "I32" : "F16, BF16 or F32");
    tiny_replace(&tiny, name, other, t->rank, t->shape[0], t->shape[1]);
    ASSERT_REFUSED(&tiny, part);
    tiny_make(&tiny);
  }
  tiny_free(&tiny);
}

TEST(takes_a_head_with_a_bias_of_zeros) {
  Tiny tiny;
  for (int tied = 0; tied < 2; tied++) {
    tiny_qwen3(&tiny);
    if (tied) tiny_remove(&tiny, "lm_head.weight");
    tiny.tied = tied;
    TinyTensor *bias = tiny_add(&tiny, "lm_head.bias", "F16", 1, 40, 1);
    memset(bias->data, 0, bias->bytes);
    char *directory = write_tiny(&tiny);
    Model *model = open_fine(directory, NULL);
    assert_null(model->head.bias.data);
    model_close(model);
    remove_directory(directory);
    tiny_free(&tiny);
  }
}

/* The config ties; transformers 5 then ties only what is equal. */
TEST(a_head_of_other_numbers_counts) {
  static const char *const dtypes[] = {"F16", "F16", "BF16", "F32"};
  for (int i = 0; i < 4; i++) {
    Tiny tiny;
    tiny_llama(&tiny);
    const TinyTensor *embedding = tiny_find(&tiny, "model.embed_tokens.weight");
    TinyTensor *head = tiny_add(&tiny, "lm_head.weight", dtypes[i], 2, 40, 32);
    if (i != 1) memcpy(head->data, embedding->data, embedding->bytes);
    if (i == 0) head->data[head->bytes - 1] ^= 1; /* only the last number differs */
    char *directory = write_tiny(&tiny);
    Model *model = open_fine(directory, NULL);
    assert_false(model->config.tied_embeddings);
    assert_string_equal(model->head.name, "lm_head");
    assert_memory_equal(model->head.weight, head->data, head->bytes);
    assert_int_equal(model->unused_tensors, 0);
    model_close(model);
    remove_directory(directory);
    tiny_free(&tiny);
  }
  Tiny tiny;
  tiny_llama(&tiny);
  tiny_add_awq(&tiny, "lm_head", 32, 40, 16);
  char *directory = write_tiny(&tiny);
  Model *model = open_fine(directory, NULL);
  assert_true(!model->config.tied_embeddings && model->head.kind == LINEAR_AWQ);
  model_close(model);
  remove_directory(directory);
  tiny_free(&tiny);
  tiny_llama(&tiny);
  tiny_add(&tiny, "lm_head.weight", "F16", 2, 41, 32);
  ASSERT_REFUSED(&tiny, "tensor lm_head.weight is [41, 32]");
}
