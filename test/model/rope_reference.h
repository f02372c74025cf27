/* rope_reference.h - rotary frequencies by transformers 5.23.0 and torch 2.15.0;
 * written by make_rope_reference.py. */
/* clang-format off */
static const struct {
  const char *config;
  int long_rope;
  float attention_factor;
  int n;
  float frequencies[128];
} rope_references[] = {
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 2}",
   0, 0x1.0000000000000p+0, 1,
   {0x1.000000p+0}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 2048}",
   0, 0x1.0000000000000p+0, 32,
   {0x1.000000p+0, 0x1.7ff222p-1, 0x1.1feb34p-1, 0x1.afd136p-2, 0x1.43d136p-2,
    0x1.e5a846p-3, 0x1.6c310ep-3, 0x1.111aeep-3, 0x1.99999ap-4, 0x1.33281ap-4,
    0x1.ccab84p-5, 0x1.59742ap-5, 0x1.030dc6p-5, 0x1.84869ep-6, 0x1.235a72p-6,
    0x1.b4f7e4p-7, 0x1.47ae14p-7, 0x1.eb7360p-8, 0x1.708938p-8, 0x1.145ceep-8,
    0x1.9e7c70p-9, 0x1.36d21ap-9, 0x1.d22a50p-10, 0x1.5d931cp-10, 0x1.0624dep-10,
    0x1.892918p-11, 0x1.26d42cp-11, 0x1.ba2e4ap-12, 0x1.4b96c0p-12, 0x1.f1502ap-13,
    0x1.74eea6p-13, 0x1.17a8e4p-13}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 80, \"rope_thet"
   "a\": 12345.678}",
   0, 0x1.0000000000000p+0, 40,
   {0x1.000000p+0, 0x1.948f28p-1, 0x1.3faa12p-1, 0x1.f92b26p-2, 0x1.8f294cp-2,
    0x1.3b6632p-2, 0x1.f26da6p-3, 0x1.89d5e2p-3, 0x1.3730e2p-3, 0x1.ebc72cp-4,
    0x1.8494a8p-4, 0x1.3309f2p-4, 0x1.e53764p-5, 0x1.7f6562p-5, 0x1.2ef132p-5,
    0x1.debe08p-6, 0x1.7a47cep-6, 0x1.2ae66cp-6, 0x1.d85acep-7, 0x1.753bb8p-7,
    0x1.26e97ap-7, 0x1.d20d66p-8, 0x1.7040dap-8, 0x1.22fa26p-8, 0x1.cbd572p-9,
    0x1.6b5704p-9, 0x1.1f1844p-9, 0x1.c5b2cep-10, 0x1.667df6p-10, 0x1.1b439ap-10,
    0x1.bfa51cp-11, 0x1.61b578p-11, 0x1.177c10p-11, 0x1.b9ac1ap-12, 0x1.5cfd42p-12,
    0x1.13c16ep-12, 0x1.b3c77ep-13, 0x1.58553ap-13, 0x1.10138ap-13, 0x1.adf6f4p-14}},
  {"{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"rope_theta\": 1000000}",
   0, 0x1.0000000000000p+0, 64,
   {0x1.000000p+0, 0x1.9c975ap-1, 0x1.4c7bc0p-1, 0x1.0beddep-1, 0x1.afd136p-2,
    0x1.5bf9fep-2, 0x1.186a08p-2, 0x1.c3f06ap-3, 0x1.6c310ep-3, 0x1.257b22p-3,
    0x1.d8ffacp-4, 0x1.7d298cp-4, 0x1.33281ap-4, 0x1.ef0a26p-5, 0x1.8eec7ep-5,
    0x1.41783ap-5, 0x1.030dc6p-5, 0x1.a18350p-6, 0x1.507316p-6, 0x1.0f2010p-6,
    0x1.b4f7e4p-7, 0x1.6020a4p-7, 0x1.1bc25ap-7, 0x1.c9548cp-8, 0x1.708938p-8,
    0x1.28fb5cp-8, 0x1.dea41cp-9, 0x1.81b58ap-9, 0x1.36d21ap-9, 0x1.f4f1e0p-10,
    0x1.93aeb8p-10, 0x1.454deep-10, 0x1.0624dep-10, 0x1.a67e50p-11, 0x1.547688p-11,
    0x1.125c04p-11, 0x1.ba2e4ap-12, 0x1.6453f6p-12, 0x1.1f24e4p-12, 0x1.cec924p-13,
    0x1.74eea6p-13, 0x1.2c8648p-13, 0x1.e459c4p-14, 0x1.864f6ap-14, 0x1.3a8748p-14,
    0x1.faeba8p-15, 0x1.987f7cp-15, 0x1.492f56p-15, 0x1.094564p-15, 0x1.ab8882p-16,
    0x1.58863ap-16, 0x1.15a1dap-16, 0x1.bf749ep-17, 0x1.68941cp-17, 0x1.2291c6p-17,
    0x1.d44e64p-18, 0x1.796182p-18, 0x1.301c04p-18, 0x1.ea20e0p-19, 0x1.8af756p-19,
    0x1.3e47c8p-19, 0x1.007bd8p-19, 0x1.9d5ef2p-20, 0x1.4d1c98p-20}},
  {"{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"head_dim\": 256, \"rope_par"
   "ameters\": {\"rope_type\": \"default\", \"rope_theta\": 5000000.0}}",
   0, 0x1.0000000000000p+0, 128,
   {0x1.000000p+0, 0x1.c5df78p-1, 0x1.925850p-1, 0x1.64aabcp-1, 0x1.3c2cbap-1,
    0x1.184792p-1, 0x1.f0eb4ep-2, 0x1.b88112p-2, 0x1.867e74p-2, 0x1.5a2950p-2,
    0x1.32dca4p-2, 0x1.100624p-2, 0x1.e24852p-3, 0x1.ab877cp-3, 0x1.7afdf8p-3,
    0x1.4ff71cp-3, 0x1.29d2c6p-3, 0x1.0802f8p-3, 0x1.d413b6p-4, 0x1.9eefbap-4,
    0x1.6fd434p-4, 0x1.4611ccp-4, 0x1.210d0ep-4, 0x1.003c36p-4, 0x1.c64a36p-5,
    0x1.92b6f0p-5, 0x1.64fea0p-5, 0x1.3c7718p-5, 0x1.18897ep-5, 0x1.f1602cp-6,
    0x1.b8e8acp-6, 0x1.86da4cp-6, 0x1.5a7abcp-6, 0x1.3324d0p-6, 0x1.10461ep-6,
    0x1.e2b9c0p-7, 0x1.abec0ap-7, 0x1.7b571ap-7, 0x1.504622p-7, 0x1.2a18d2p-7,
    0x1.084110p-7, 0x1.d481ccp-8, 0x1.9f5152p-8, 0x1.702ab8p-8, 0x1.465e7cp-8,
    0x1.21510ap-8, 0x1.00787ap-8, 0x1.c6b50ep-9, 0x1.9315a6p-9, 0x1.655296p-9,
    0x1.3cc186p-9, 0x1.18cb78p-9, 0x1.f1d526p-10, 0x1.b95060p-10, 0x1.873638p-10,
    0x1.5acc38p-10, 0x1.336d0cp-10, 0x1.108628p-10, 0x1.e32b4ap-11, 0x1.ac50acp-11,
    0x1.7bb052p-11, 0x1.509538p-11, 0x1.2a5eecp-11, 0x1.087f36p-11, 0x1.d4effep-12,
    0x1.9fb300p-12, 0x1.708150p-12, 0x1.46ab3ep-12, 0x1.219516p-12, 0x1.00b4ccp-12,
    0x1.c72000p-13, 0x1.937474p-13, 0x1.65a69ep-13, 0x1.3d0c06p-13, 0x1.190d82p-13,
    0x1.f24a3ep-14, 0x1.b9b828p-14, 0x1.87923cp-14, 0x1.5b1dc8p-14, 0x1.33b55ap-14,
    0x1.10c640p-14, 0x1.e39cecp-15, 0x1.acb56ap-15, 0x1.7c099ep-15, 0x1.50e460p-15,
    0x1.2aa51ap-15, 0x1.08bd6cp-15, 0x1.d55e46p-16, 0x1.a014c4p-16, 0x1.70d7f8p-16,
    0x1.46f812p-16, 0x1.21d932p-16, 0x1.00f12cp-16, 0x1.c78b0cp-17, 0x1.93d356p-17,
    0x1.65fabep-17, 0x1.3d5696p-17, 0x1.194f9ep-17, 0x1.f2bf6cp-18, 0x1.ba200cp-18,
    0x1.87ee54p-18, 0x1.5b6f6cp-18, 0x1.33fdb8p-18, 0x1.110668p-18, 0x1.e40eaap-19,
    0x1.ad1a3ep-19, 0x1.7c6300p-19, 0x1.51339cp-19, 0x1.2aeb56p-19, 0x1.08fbb0p-19,
    0x1.d5ccaap-20, 0x1.a076a0p-20, 0x1.712ebap-20, 0x1.4744f8p-20, 0x1.221d5cp-20,
    0x1.012d9ap-20, 0x1.c7f630p-21, 0x1.943252p-21, 0x1.664eeep-21, 0x1.3da13ap-21,
    0x1.1991c6p-21, 0x1.f334bcp-22, 0x1.ba880ap-22, 0x1.884a80p-22, 0x1.5bc122p-22,
    0x1.344628p-22, 0x1.11469ep-22, 0x1.e48084p-23}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 64, \"rope_scal"
   "ing\": {\"type\": \"linear\", \"factor\": 4.0}}",
   0, 0x1.0000000000000p+0, 32,
   {0x1.000000p-2, 0x1.7ff222p-3, 0x1.1feb34p-3, 0x1.afd136p-4, 0x1.43d136p-4,
    0x1.e5a846p-5, 0x1.6c310ep-5, 0x1.111aeep-5, 0x1.99999ap-6, 0x1.33281ap-6,
    0x1.ccab84p-7, 0x1.59742ap-7, 0x1.030dc6p-7, 0x1.84869ep-8, 0x1.235a72p-8,
    0x1.b4f7e4p-9, 0x1.47ae14p-9, 0x1.eb7360p-10, 0x1.708938p-10, 0x1.145ceep-10,
    0x1.9e7c70p-11, 0x1.36d21ap-11, 0x1.d22a50p-12, 0x1.5d931cp-12, 0x1.0624dep-12,
    0x1.892918p-13, 0x1.26d42cp-13, 0x1.ba2e4ap-14, 0x1.4b96c0p-14, 0x1.f1502ap-15,
    0x1.74eea6p-15, 0x1.17a8e4p-15}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 96, \"rope_scal"
   "ing\": {\"rope_type\": \"linear\", \"factor\": 2.7}, \"rope_theta\": 500000.0}",
   0, 0x1.0000000000000p+0, 48,
   {0x1.7b425ep-2, 0x1.208a82p-2, 0x1.b70b88p-3, 0x1.4e06b8p-3, 0x1.fc4160p-4,
    0x1.82ae7cp-4, 0x1.263020p-4, 0x1.bfa32ep-5, 0x1.549032p-5, 0x1.0319e4p-5,
    0x1.8a3fcap-6, 0x1.2bf206p-6, 0x1.c865dep-7, 0x1.5b3a70p-7, 0x1.082c02p-7,
    0x1.91f6fep-8, 0x1.31d0c2p-8, 0x1.d15478p-9, 0x1.620616p-9, 0x1.0d5782p-9,
    0x1.99d4e0p-10, 0x1.37ccecp-10, 0x1.da6fc4p-11, 0x1.68f3c6p-11, 0x1.129ceep-11,
    0x1.a1da2cp-12, 0x1.3de70ap-12, 0x1.e3b8bep-13, 0x1.70042cp-13, 0x1.17fcc0p-13,
    0x1.aa079cp-14, 0x1.441fcap-14, 0x1.ed302ep-15, 0x1.7737f2p-15, 0x1.1d778ap-15,
    0x1.b25e02p-16, 0x1.4a77a6p-16, 0x1.f6d726p-17, 0x1.7e8fcap-17, 0x1.230db8p-17,
    0x1.bade48p-18, 0x1.50ef4cp-18, 0x1.005730p-18, 0x1.860c7cp-19, 0x1.28bfe6p-19,
    0x1.c3890ap-20, 0x1.578766p-20, 0x1.055b74p-20}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 64, \"max_posit"
   "ion_embeddings\": 131072, \"rope_theta\": 500000.0, \"rope_scaling\": {\"factor\": 32.0, \"high_freq"
   "_factor\": 4.0, \"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\":"
   " \"llama3\"}}",
   0, 0x1.0000000000000p+0, 32,
   {0x1.000000p+0, 0x1.53c38cp-1, 0x1.c2ef78p-2, 0x1.2b3dc6p-2, 0x1.8d2760p-3,
    0x1.078d40p-3, 0x1.5dc95ap-4, 0x1.d03ccep-5, 0x1.341190p-5, 0x1.98de92p-6,
    0x1.0f5386p-6, 0x1.681adap-7, 0x1.ddee9ep-8, 0x1.3d2804p-8, 0x1.a4ee40p-9,
    0x1.524f36p-10, 0x1.c26c40p-12, 0x1.9731eep-14, 0x1.46831ap-16, 0x1.b15902p-17,
    0x1.1f91f0p-17, 0x1.7da9e8p-18, 0x1.fa8b86p-19, 0x1.5024d6p-19, 0x1.be2188p-20,
    0x1.280d96p-20, 0x1.88ec20p-21, 0x1.04be68p-21, 0x1.5a0f4ep-22, 0x1.cb4a9ap-23,
    0x1.30c94ep-23, 0x1.948360p-24}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 128, \"max_posi"
   "tion_embeddings\": 131072, \"rope_parameters\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, \"low_f"
   "req_factor\": 1.0, \"rope_type\": \"llama3\", \"original_max_position_embeddings\": 8192, \"rope_the"
   "ta\": 500000.0}}",
   0, 0x1.0000000000000p+0, 64,
   {0x1.000000p+0, 0x1.a11582p-1, 0x1.53c38cp-1, 0x1.14c708p-1, 0x1.c2ef78p-2,
    0x1.6f56fap-2, 0x1.2b3dc6p-2, 0x1.e788c2p-3, 0x1.8d2760p-3, 0x1.438740p-3,
    0x1.078d40p-3, 0x1.ad6338p-4, 0x1.5dc95ap-4, 0x1.1cf130p-4, 0x1.d03ccep-5,
    0x1.7a2d08p-5, 0x1.341190p-5, 0x1.f5ea7ep-6, 0x1.98de92p-6, 0x1.4d1272p-6,
    0x1.0f5386p-6, 0x1.ba0dd8p-7, 0x1.681adap-7, 0x1.2558fep-7, 0x1.ddee9ep-8,
    0x1.8554ecp-8, 0x1.3d2804p-8, 0x1.025c6ap-8, 0x1.a4ee40p-9, 0x1.1bfa0cp-9,
    0x1.67a23ap-10, 0x1.c12f3cp-11, 0x1.132ba4p-11, 0x1.47e210p-12, 0x1.765ba4p-13,
    0x1.90d10cp-14, 0x1.46831ap-14, 0x1.09fb7ep-14, 0x1.b15902p-15, 0x1.610332p-15,
    0x1.1f91f0p-15, 0x1.d484dep-16, 0x1.7da9e8p-16, 0x1.36e8eap-16, 0x1.fa8b86p-17,
    0x1.9ca3eap-17, 0x1.5024d6p-17, 0x1.11d41ep-17, 0x1.be2188p-18, 0x1.6b6d0ep-18,
    0x1.280d96p-18, 0x1.e25700p-19, 0x1.88ec20p-19, 0x1.4014d2p-19, 0x1.04be68p-19,
    0x1.a8d010p-20, 0x1.5a0f4ep-20, 0x1.19e800p-20, 0x1.cb4a9ap-21, 0x1.76258ep-21,
    0x1.30c94ep-21, 0x1.f09184p-22, 0x1.948360p-22, 0x1.4985fep-22}},
  {"{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"max_position_embeddings\": "
   "131072, \"rope_theta\": 1000000.0, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"origina"
   "l_max_position_embeddings\": 32768}}",
   0, 0x1.237d37fe5d298p+0, 64,
   {0x1.000000p+0, 0x1.9c975ap-1, 0x1.4c7bc0p-1, 0x1.0beddep-1, 0x1.afd136p-2,
    0x1.5bf9fep-2, 0x1.186a08p-2, 0x1.c3f06ap-3, 0x1.6c310ep-3, 0x1.257b22p-3,
    0x1.d8ffacp-4, 0x1.7d298cp-4, 0x1.33281ap-4, 0x1.ef0a26p-5, 0x1.8eec7ep-5,
    0x1.41783ap-5, 0x1.030dc6p-5, 0x1.a18350p-6, 0x1.507316p-6, 0x1.0f2010p-6,
    0x1.b4f7e4p-7, 0x1.6020a4p-7, 0x1.1bc25ap-7, 0x1.c9548cp-8, 0x1.6046eep-8,
    0x1.0ec710p-8, 0x1.9f4aa0p-9, 0x1.3da490p-9, 0x1.e483bep-10, 0x1.705780p-10,
    0x1.17040ep-10, 0x1.a4fb70p-11, 0x1.3c1d64p-11, 0x1.d832d0p-12, 0x1.5e7a04p-12,
    0x1.02387cp-12, 0x1.79277cp-13, 0x1.107c70p-13, 0x1.847d34p-14, 0x1.103a14p-14,
    0x1.74eea6p-15, 0x1.2c8648p-15, 0x1.e459c4p-16, 0x1.864f6ap-16, 0x1.3a8748p-16,
    0x1.faeba8p-17, 0x1.987f7cp-17, 0x1.492f56p-17, 0x1.094564p-17, 0x1.ab8882p-18,
    0x1.58863ap-18, 0x1.15a1dap-18, 0x1.bf749ep-19, 0x1.68941cp-19, 0x1.2291c6p-19,
    0x1.d44e64p-20, 0x1.796182p-20, 0x1.301c04p-20, 0x1.ea20e0p-21, 0x1.8af756p-21,
    0x1.3e47c8p-21, 0x1.007bd8p-21, 0x1.9d5ef2p-22, 0x1.4d1c98p-22}},
  {"{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"head_dim\": 64, \"max_posit"
   "ion_embeddings\": 32768, \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 3.5, \"rope_thet"
   "a\": 1000000.0}}",
   0, 0x1.20121b7deec8ap+0, 32,
   {0x1.000000p+0, 0x1.4c7bc0p-1, 0x1.afd136p-2, 0x1.186a08p-2, 0x1.6c310ep-3,
    0x1.d8ffacp-4, 0x1.33281ap-4, 0x1.8eec7ep-5, 0x1.030dc6p-5, 0x1.507316p-6,
    0x1.b4f7e4p-7, 0x1.1bc25ap-7, 0x1.534980p-8, 0x1.92aa90p-9, 0x1.d9a1acp-10,
    0x1.138782p-10, 0x1.3c3cbap-11, 0x1.64acf0p-12, 0x1.890cb4p-13, 0x1.a35252p-14,
    0x1.aa3552p-15, 0x1.14c596p-15, 0x1.677608p-16, 0x1.d2dad6p-17, 0x1.2f2abcp-17,
    0x1.89bdf8p-18, 0x1.ff60b6p-19, 0x1.4c1450p-19, 0x1.af4adep-20, 0x1.1812cap-20,
    0x1.6bbfc0p-21, 0x1.d86c82p-22}},
  {"{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"head_dim\": 64, \"max_posit"
   "ion_embeddings\": 4096, \"original_max_position_embeddings\": 1024, \"rope_scaling\": {\"rope_type\""
   ": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 512}}",
   0, 0x1.237d37fe5d298p+0, 32,
   {0x1.000000p+0, 0x1.7ff222p-1, 0x1.1feb34p-1, 0x1.afd136p-2, 0x1.43d136p-2,
    0x1.e5a846p-3, 0x1.572e3ap-3, 0x1.e32fa6p-4, 0x1.52b52cp-4, 0x1.d88c78p-5,
    0x1.47c8cep-5, 0x1.c3bf4cp-6, 0x1.34df30p-6, 0x1.a26996p-7, 0x1.1825bcp-7,
    0x1.71be10p-8, 0x1.deeabcp-9, 0x1.2e6e62p-9, 0x1.708938p-10, 0x1.145ceep-10,
    0x1.9e7c70p-11, 0x1.36d21ap-11, 0x1.d22a50p-12, 0x1.5d931cp-12, 0x1.0624dep-12,
    0x1.892918p-13, 0x1.26d42cp-13, 0x1.ba2e4ap-14, 0x1.4b96c0p-14, 0x1.f1502ap-15,
    0x1.74eea6p-15, 0x1.17a8e4p-15}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 64, \"rope_scal"
   "ing\": {\"rope_type\": \"yarn\", \"factor\": 40, \"mscale\": 0.707, \"mscale_all_dim\": 0.5, \"origi"
   "nal_max_position_embeddings\": 4096, \"beta_fast\": 32, \"beta_slow\": 1}}",
   0, 0x1.108108ba09617p+0, 32,
   {0x1.000000p+0, 0x1.7ff222p-1, 0x1.1feb34p-1, 0x1.afd136p-2, 0x1.43d136p-2,
    0x1.e5a846p-3, 0x1.6c310ep-3, 0x1.111aeep-3, 0x1.99999ap-4, 0x1.33281ap-4,
    0x1.ccab84p-5, 0x1.3f8b74p-5, 0x1.b86436p-6, 0x1.2d1b86p-6, 0x1.97e506p-7,
    0x1.111aeep-7, 0x1.6872b2p-8, 0x1.d2e0ccp-9, 0x1.26d42cp-9, 0x1.67459ap-10,
    0x1.9e7c6ep-11, 0x1.b32624p-12, 0x1.74eea6p-13, 0x1.17a8e2p-15, 0x1.a36e2ep-16,
    0x1.3a8746p-16, 0x1.d7b9e0p-17, 0x1.61bea2p-17, 0x1.094566p-17, 0x1.8dd9bap-18,
    0x1.2a5884p-18, 0x1.bf749ep-19}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 96, \"rope_scal"
   "ing\": {\"rope_type\": \"yarn\", \"factor\": 10.5, \"truncate\": false, \"attention_factor\": 1.3, "
   "\"original_max_position_embeddings\": 2000, \"beta_fast\": 24.5, \"beta_slow\": 2}}",
   0, 0x1.4cccccccccccdp+0, 48,
   {0x1.000000p+0, 0x1.a69b60p-1, 0x1.5cd250p-1, 0x1.1feb34p-1, 0x1.db4c78p-2,
    0x1.885044p-2, 0x1.43d136p-2, 0x1.0b47b4p-2, 0x1.b93a6ap-3, 0x1.6c310ep-3,
    0x1.2c9af4p-3, 0x1.f03ddep-4, 0x1.99999ap-4, 0x1.5215e6p-4, 0x1.0ac380p-4,
    0x1.9874b4p-5, 0x1.36cb64p-5, 0x1.d5919ep-6, 0x1.5faf38p-6, 0x1.04a66ep-6,
    0x1.7d5e00p-7, 0x1.126808p-7, 0x1.8256fep-8, 0x1.07df0ep-8, 0x1.58c802p-9,
    0x1.a33df8p-10, 0x1.bc96dcp-11, 0x1.18ca12p-11, 0x1.cf878cp-12, 0x1.7e9958p-12,
    0x1.3bcc86p-12, 0x1.04a96ap-12, 0x1.ae4d72p-13, 0x1.632c6ep-13, 0x1.25296ap-13,
    0x1.e3f426p-14, 0x1.8f7520p-14, 0x1.49b6c6p-14, 0x1.1025aep-14, 0x1.c14350p-15,
    0x1.72d2d6p-15, 0x1.321448p-15, 0x1.f9473cp-16, 0x1.a10f12p-16, 0x1.583df2p-16,
    0x1.1c238cp-16, 0x1.d50f10p-17, 0x1.8329bcp-17}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 16, \"rope_scal"
   "ing\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 6}}",
   0, 0x1.237d37fe5d298p+0, 8,
   {0x1.000000p+0, 0x1.43d136p-4, 0x1.99999ap-6, 0x1.030dc6p-7, 0x1.47ae14p-9,
    0x1.9e7c70p-11, 0x1.0624dep-12, 0x1.4b96c0p-14}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 16, \"rope_scal"
   "ing\": {\"rope_type\": \"yarn\", \"factor\": 0.5, \"beta_fast\": 1, \"beta_slow\": 64, \"original_ma"
   "x_position_embeddings\": 2048}}",
   0, 0x1.0000000000000p+0, 8,
   {0x1.000000p+1, 0x1.43d136p-1, 0x1.99999ap-3, 0x1.afc1a0p-5, 0x1.b4e81cp-7,
    0x1.9e7c70p-9, 0x1.0624dep-10, 0x1.4b96c0p-12}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 16, \"rope_thet"
   "a\": 100.0, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"beta_fast\": 2000, \"beta"
   "_slow\": 1, \"original_max_position_embeddings\": 131072}}",
   0, 0x1.237d37fe5d298p+0, 8,
   {0x1.000000p+0, 0x1.1feb34p-1, 0x1.43d136p-2, 0x1.6c310ep-3, 0x1.99999ap-4,
    0x1.ad42bcp-5, 0x1.bf74e2p-6, 0x1.cf8440p-7}},
  {"{\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", \"hidden_size\": 96, \"num_atte"
   "ntion_heads\": 6, \"num_key_value_heads\": 2, \"partial_rotary_factor\": 0.75, \"max_position_embedd"
   "ings\": 131072, \"pad_token_id\": 0, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1"
   ".0, 1.05, 1.3, 1.9, 2.0, 2.2], \"long_factor\": [1.0, 1.1182, 4.7, 18.6, 31.1, 47.77]}}",
   0, 0x1.30b3713738289p+0, 6,
   {0x1.000000p+0, 0x1.a437a6p-3, 0x1.247dd2p-5, 0x1.58ed24p-8, 0x1.1a62d2p-10,
    0x1.ba75bep-13}},
  {"{\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", \"hidden_size\": 96, \"num_atte"
   "ntion_heads\": 6, \"num_key_value_heads\": 2, \"partial_rotary_factor\": 0.75, \"max_position_embedd"
   "ings\": 131072, \"pad_token_id\": 0, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1"
   ".0, 1.05, 1.3, 1.9, 2.0, 2.2], \"long_factor\": [1.0, 1.1182, 4.7, 18.6, 31.1, 47.77]}}",
   1, 0x1.30b3713738289p+0, 6,
   {0x1.000000p+0, 0x1.8a9682p-3, 0x1.439b8cp-7, 0x1.19e012p-11, 0x1.228ed6p-14,
    0x1.46086ap-17}},
  {"{\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", \"hidden_size\": 96, \"num_atte"
   "ntion_heads\": 6, \"num_key_value_heads\": 2, \"partial_rotary_factor\": 0.75, \"max_position_embedd"
   "ings\": 131072, \"pad_token_id\": 0, \"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1.0, 1."
   "05, 1.3, 1.9, 2.0, 2.2], \"long_factor\": [1.0, 1.1182, 4.7, 18.6, 31.1, 47.77], \"factor\": 7.5, \""
   "original_max_position_embeddings\": 8192}, \"rope_theta\": 250000.0, \"original_max_position_embeddi"
   "ngs\": 8192}",
   1, 0x1.1b2dce58d00fdp+0, 6,
   {0x1.000000p+0, 0x1.cd834ap-4, 0x1.bab05ep-9, 0x1.c3001cp-14, 0x1.0fdef2p-17,
    0x1.64ce2ep-21}},
  {"{\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", \"hidden_size\": 72, \"num_atte"
   "ntion_heads\": 6, \"num_key_value_heads\": 2, \"partial_rotary_factor\": null, \"max_position_embedd"
   "ings\": 131072, \"pad_token_id\": 0, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1"
   ".0, 1.05, 1.3, 1.9, 2.0, 2.2], \"long_factor\": [1.0, 1.1182, 4.7, 18.6, 31.1, 47.77], \"rope_type\""
   ": \"longrope\", \"attention_factor\": 1.19}}",
   0, 0x1.30a3d70a3d70ap+0, 6,
   {0x1.000000p+0, 0x1.a437a6p-3, 0x1.247dd2p-5, 0x1.58ed24p-8, 0x1.1a62d2p-10,
    0x1.ba75bep-13}},
  {"{\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", \"hidden_size\": 96, \"num_atte"
   "ntion_heads\": 6, \"num_key_value_heads\": 2, \"partial_rotary_factor\": 0.75, \"max_position_embedd"
   "ings\": 131072, \"pad_token_id\": 0, \"rope_scaling\": {}}",
   0, 0x1.0000000000000p+0, 6,
   {0x1.000000p+0, 0x1.b93a6ap-3, 0x1.7c3d2ap-5, 0x1.47ae14p-7, 0x1.1a62d2p-9,
    0x1.e6b4b8p-12}},
  {"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"head_dim\": 4, \"max_positi"
   "on_embeddings\": 65536, \"rope_parameters\": {\"rope_type\": \"longrope\", \"original_max_position_e"
   "mbeddings\": 2048, \"short_factor\": [1, 2], \"long_factor\": [3, 4.5], \"rope_theta\": 500000.0}}",
   1, 0x1.34bf63d156826p+0, 2,
   {0x1.555556p-2, 0x1.49891ep-12}},
};
/* clang-format on */
