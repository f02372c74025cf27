# auk: `make help` says what there is to make.
#
# One archive a room (src/base -> $(BUILD)/base.a); a program is linked with its room and those below it, so that a
# call upwards fails to link. Everything made goes to $(BUILD), nothing is written beside the sources.
#
#   make CC=clang CFLAGS=-O3      another compiler, other flags: what they change is made anew
#   make test SANITIZE=1          with ASan and UBSan, in a folder of its own
#   make test-gpu EMULATE=1       the kernels as C++ for this processor (test/cuda/emulator), in a folder of its own;
#                                 EMULATED_ARCH=75, 80 (the default) or 90: as this chip would run them
#   make test-gpu PARTS='...'     some of what scripts/test_gpu.sh can do
#   make CUDA=1                   with the CUDA kernels (0 without; the default: see GPUS)
#   make CUDA_ARCHS="86 90a"      for these chips (all: for every one that nvcc knows; the default: see CUDA_ARCHS)
#   make STATIC=1                 library archives linked in; what has none, beside the program: for bare machines
#   make BUILD=elsewhere          objects and programs elsewhere
#   make V=1                      shows the commands

EMULATED_ARCH ?= 80
BUILD        = build$(if $(filter 1,$(EMULATE)),/emulated-$(EMULATED_ARCH))$(if $(filter 1,$(SANITIZE)),/sanitize)
# Objects and archives that know nothing of CUDA are the same for the emulated GPU's builds: made once, in build.
HOST         = $(if $(filter 1-file,$(EMULATE)-$(origin BUILD)),build$(if $(filter 1,$(SANITIZE)),/sanitize),$(BUILD))
PREFIX       = /usr/local
# A python3 from elsewhere (pyenv, conda) may lack the modules that the system's package manager installs.
PYTHON       = $(firstword $(foreach python,python3 /usr/bin/python3,$(shell $(python) -c 'import numpy' 2>&- && \
                 echo $(python))) python3)
PKG_CONFIG   = pkg-config
# With sanitizers -Og compiles in half of the time of -O2, four fifths of that of -O1, and runs as fast. To follow
# variables through -O2 (-g) takes gcc a fifth of its time, and most are optimised out: lines (-g1) are enough.
CFLAGS      ?= $(if $(filter 1,$(SANITIZE) $(FUZZ)),-Og -g1,-O2 -g1)
FUZZ_SECONDS = 60
NVCC         = nvcc
# The chips of this machine's GPUs, as in "90": lines like "9.0", as "No devices were found" goes to standard output too.
# Where there is none, the kernels are built only by the targets in BUILDS, whose products can be taken elsewhere; another
# target after one of them then links build/auk anew, without CUDA (CUDA=0 or CUDA=1 to all of them avoids that).
GPUS        := $(sort $(subst .,,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>&- | \
                 grep -E '^[0-9]+\.[0-9]+$$')))
BUILDS      := $(filter all install gpu-programs test-gpu torture-gpu,$(or $(MAKECMDGOALS),all))
CUDA        := $(if $(and $(shell command -v $(NVCC)),$(GPUS)$(BUILDS)),1,0)
STATIC       = 0

# On a terminal one line names the file that is being made, and the next line overwrites it.
ONE_LINE     = $(and $(MAKE_TERMOUT),$(filter-out dumb,$(TERM)))
Q            = $(if $(V),,@$(if $(ONE_LINE),printf '\033[K  %s\r' '$@',echo "  $@");)

.DEFAULT_GOAL := all
.PHONY: all test test-unit goldens test-gpu gpu-programs cuda-objects demo bench lint format fuzz fuzz-programs torture torture-gpu torture-program \
        install clean help FORCE
.SECONDARY:
MAKEFLAGS += --no-builtin-rules

VERSION  := 0.1.0
RELEASED := 2026-11-20
PACKAGES := libcjson libutf8proc libpcre2-8 libedit
# Warnings are errors in .ci/run alone: a newer compiler warns of more.
WERROR   ?=
WARN     := -Wall -Wextra -Wno-unused-parameter $(WERROR) -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
AUK_CPPFLAGS := -D_GNU_SOURCE -DAUK_VERSION=\"$(VERSION)\" -DAUK_RELEASED=\"$(RELEASED)\" -Isrc -I. $(CPPFLAGS)
# No contraction and no fast math: results depend on the source, not on the compiler's mood.
AUK_CFLAGS := -std=c11 $(WARN) -fopenmp -ffp-contract=off $(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>&-) $(CFLAGS)
AUK_LDLIBS := $(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>&-) -lm $(LDLIBS)
ifeq ($(STATIC),1)
# A library with an archive is linked in; one without is put beside the program, where $$ORIGIN finds it.
archive     = $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a))
# (cmocka may be missing: only tests need it.)
shared      = $(filter /%,$(shell $(CC) -print-file-name=lib$(1).so))
BESIDE     := $(foreach lib,cjson cmocka,$(if $(call archive,$(lib)),,$(if $(call shared,$(lib)),$(lib))))
EDIT       := $(if $(call archive,edit),edit tinfo bsd md,edit) # libedit.a with what it needs
AUK_LDLIBS := $(foreach lib,cjson utf8proc pcre2-8 $(EDIT) gomp,$(or $(call archive,$(lib)),-l$(lib))) \
  -lm -ldl -lpthread $(LDLIBS)
AUK_LDFLAGS = -Wl,--as-needed -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../..' -static-libgcc
endif
# Warnings are off here: code that sanitizers add makes gcc warn of paths that do not exist. Undefined behaviour is an
# illegal instruction, which ASan reports with its line (ASAN_OPTIONS=handle_sigill=1): the data of UBSan's messages, 9 MB,
# costs the compiler a fifth of its time, and leak checks read it at every end.
ifneq ($(filter 1,$(SANITIZE) $(FUZZ)),)
AUK_CFLAGS += -w -fsanitize=address,undefined -fsanitize-undefined-trap-on-error -fno-omit-frame-pointer
AUK_CFLAGS += $(if $(filter 1,$(FUZZ)),-fsanitize=fuzzer-no-link)
# Data of the checks holds addresses, which every start of a program that may lie anywhere would fix, some megabytes.
AUK_LDFLAGS += -no-pie $(if $(shell command -v ld.gold),-fuse-ld=gold) # in half of the time
endif
ifeq ($(EMULATE),1)
override CUDA := 1
CUDA_CPPFLAGS  = -DAUK_CUDA=1 -Itest/cuda/emulator
CUDA_LDLIBS    = -lstdc++
else ifeq ($(CUDA),1)
CUDA_HOME  := $(patsubst %/bin/nvcc,%,$(shell command -v $(NVCC)))
# Without a GPU here: Turing, Ampere (whose code Ada runs too) and Hopper, and for any other chip PTX, which the driver
# compiles when auk first runs there. Code for 90a runs on compute capability 9.0 alone, so later chips take PTX of 90.
CUDA_ARCHS  = $(or $(subst 90,90a,$(GPUS)),75 80 90a)
CUDA_PTX    = $(if $(GPUS)$(filter-out file,$(origin CUDA_ARCHS)),,80 90)
CHIPS      := $(if $(filter all,$(CUDA_ARCHS)),$(patsubst compute_%,%,$(subst _90,_90a,$(shell \
                $(NVCC) --list-gpu-arch))),$(CUDA_ARCHS))
AUK_NVCCFLAGS := -std=c++17 -O3 $(if $(WERROR),-Werror all-warnings) $(NVCCFLAGS) \
  $(foreach arch,$(CHIPS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
  $(foreach arch,$(CUDA_PTX),-gencode arch=compute_$(arch),code=compute_$(arch)) \
  $(if $(filter 90a,$(CHIPS)),-DAUK_HAS_SM90A)
TARGETS     = $(CHIPS:%=sm_%)$(if $(CUDA_PTX), and PTX for other chips)
TELL.cuda   = echo "$(words $(wildcard $(CUDA_FOLDERS:=/*.cu))) CUDA sources for $(TARGETS): \
  CUDA_ARCHS=\"86 90a\" builds for these, CUDA_ARCHS=all for all, CUDA=0 without CUDA"
CUDA_LDLIBS := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt -lpthread
endif
AUK_LDLIBS += $(CUDA_LDLIBS)
CUDA_CPPFLAGS ?= -DAUK_CUDA=$(CUDA) $(if $(CUDA_HOME),-I$(CUDA_HOME)/include)

# --- rooms, highest first; each may know those after it (cpu and cuda implement the engine's backend.h)
ROOMS           := commands terminal quantize engine cpu cuda model constrain tokenizer base
BELOW_commands  := commands terminal quantize cpu cuda engine model constrain tokenizer base
BELOW_terminal  := terminal base
BELOW_quantize  := quantize cpu engine model base
BELOW_engine    := engine cpu model base
BELOW_cpu       := cpu engine model base
BELOW_cuda      := cuda quantize cpu engine model base
BELOW_model     := model base
BELOW_constrain := constrain tokenizer base
BELOW_tokenizer := tokenizer base
BELOW_base      := base
BELOW_fuzz      := fuzz model constrain tokenizer base

# src/cpu/kernels.c is compiled once for each instruction set; the program picks one when it starts.
MACHINE := $(shell $(CC) -dumpmachine)
ifneq ($(filter x86_64%,$(MACHINE)),)
ISAS := baseline avx2 avx512
endif
ISAS ?= baseline
ISA_FLAGS_avx2   := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512

CUDA_FOLDERS := cuda/* cuda/*/* cuda/*/*/*
KNOW_CUDA := src/commands/device.c src/commands/ranks/join.c $(wildcard $(CUDA_FOLDERS:=/*.c))
objects  = $(foreach file,$(sort $(wildcard $(1)/*.c)),$(if $(filter $(KNOW_CUDA),$(file)),$(BUILD),$(HOST))/$(file:.c=.o))
OBJECTS_commands  := $(call objects,src/commands) $(call objects,src/commands/*) $(call objects,src/commands/*/*)
OBJECTS_terminal  := $(call objects,src/terminal)
OBJECTS_quantize  := $(call objects,src/quantize)
OBJECTS_engine    := $(call objects,src/engine) $(call objects,src/engine/*)
OBJECTS_cpu       := $(filter-out %/kernels.o,$(call objects,src/cpu)) $(call objects,src/cpu/*) \
  $(ISAS:%=$(HOST)/src/cpu/kernels.%.o)
OBJECTS_cuda      := $(foreach in,$(CUDA_FOLDERS),$(call objects,$(in)) $(patsubst %.cu,$(BUILD)/%.o,$(wildcard $(in)/*.cu)))
OBJECTS_model     := $(call objects,src/model) $(call objects,src/model/*)
OBJECTS_constrain := $(call objects,src/constrain) $(call objects,src/constrain/*)
OBJECTS_tokenizer := $(call objects,tokenizer) $(call objects,tokenizer/*)
OBJECTS_base      := $(call objects,src/base)
ifneq ($(CUDA),1) # without nvcc only what says which kernel runs, and how: host code, tested without a GPU
OBJECTS_cuda := $(filter %/dispatch.o %/supported.o %/fused/plan.o %/step_models.o %/several/link.o %/several/sha256.o,$(OBJECTS_cuda))
endif
ifeq ($(EMULATE),1)
OBJECTS_cuda := $(filter-out %/cublas.o,$(OBJECTS_cuda)) \
  $(patsubst %.cpp,$(BUILD)/%.o,$(wildcard test/cuda/emulator/*.cpp))
endif
# What the programs in test/fuzz use of the rooms that are above model.
OBJECTS_fuzz := $(foreach name,common console conversation conversation_file form input_text messages map_prompt map_records \
  map_results map_resume map_settings npy prefix_file tools written_calls,\
  $(filter %/$(name).o,$(OBJECTS_commands) $(OBJECTS_engine) $(OBJECTS_terminal)))
archive_of = $(if $(filter cuda commands,$(1)),$(BUILD),$(HOST))/$(1).a
archives = $(foreach room,$(BELOW_$(1)),$(call archive_of,$(room)))
libraries = -Wl,--start-group $(call archives,$(1)) -Wl,--end-group $(2) $(AUK_LDLIBS)

tests_of = $(patsubst %.c,$(BUILD)/%,$(wildcard test/$(1)/test_*.c test/$(1)/*/test_*.c))
TESTS := $(foreach room,$(ROOMS),$(call tests_of,$(room)))
FUZZERS := $(patsubst %.c,$(BUILD)/%,$(wildcard test/fuzz/fuzz_*.c))

all: $(BUILD)/auk
	@$(if $(ONE_LINE),printf '\033[K%s is built\n' '$<',:)

shared_library = $(shell $(CC) -print-file-name=lib$(lib).so)
library_name = $$(objdump -p $(shared_library) | awk '/SONAME/ {print $$2}')
define copy_beside
@cp -L $(shared_library) $(@D)/$(library_name)

endef
define install_beside
install -m 644 $(shared_library) $(DESTDIR)$(PREFIX)/bin/$(library_name)

endef

$(BUILD)/auk: $(HOST)/main.o $(call archives,commands) $(BUILD)/flags.link
	$(Q)$(CC) $(AUK_CFLAGS) $(LDFLAGS) $(AUK_LDFLAGS) -o $@ $< $(call libraries,commands)
	$(foreach lib,$(BESIDE),$(copy_beside))

# Tests compute little themselves: -Og compiles them in half of the time of -O2; with sanitizers -O0 does in a third, and
# without warnings of what is not initialised.
$(BUILD)/test/%.o: private AUK_CFLAGS := \
  $(if $(filter 1,$(SANITIZE)),$(filter-out -w,$(AUK_CFLAGS)) -O0,$(AUK_CFLAGS) -Og)
$(BUILD)/test/cpu/%.o: private AUK_CFLAGS += $(if $(filter 1,$(SANITIZE)),-Og,-O2) # sums that take longer than the compiler

# A room's archive, and its tests: test/ROOM/test_*.c (and in folders of a room), each a cmocka program.
define rules_of_room
$(call archive_of,$(1)): $(OBJECTS_$(1))
	$$(Q)mkdir -p $$(@D) && rm -f $$@ && $$(AR) rcs $$@ $$^
$(call tests_of,$(1)): %: %.o $(call archives,$(1)) $(BUILD)/flags.link
	$$(Q)$$(CC) $$(AUK_CFLAGS) $$(LDFLAGS) $$(AUK_LDFLAGS) -o $$@ $$< $$(call libraries,$(1),-lcmocka)
endef
$(foreach room,$(ROOMS),$(eval $(call rules_of_room,$(room))))

# Every object also depends on $(BUILD)/flags, which is rewritten when the compiler or a flag is another than before;
# those that know of CUDA on $(BUILD)/flags.cuda, so that with and without it the rest stays; programs on
# $(BUILD)/flags.link, which no object depends on: those of $(HOST) stay whatever they are linked with.
FLAGS = $(shell command -v $(CC)) $(MACHINE) $(AUK_CPPFLAGS) $(AUK_CFLAGS)
FLAGS.cuda = $(CUDA_CPPFLAGS) $(AUK_NVCCFLAGS) $(EMULATED_FLAGS) $(EMULATED_CFLAGS)
FLAGS.link = $(AUK_CFLAGS) $(LDFLAGS) $(AUK_LDFLAGS) $(AUK_LDLIBS)
$(sort $(BUILD)/flags $(HOST)/flags) $(BUILD)/flags.cuda $(BUILD)/flags.link: FORCE
	@$(PKG_CONFIG) --exists $(PACKAGES) || { echo "missing libraries: sh scripts/bootstrap.sh $(MAKECMDGOALS)"; exit 1; }
	@mkdir -p $(@D)
	@now="$(FLAGS$(suffix $@))"; [ "$$now" = "$$(cat $@ 2>&-)" ] || \
	  { $(or $(TELL$(suffix $@)),:); printf '%s\n' "$$now" >$@; }

define rule_of_objects
$(1)/%.o: %.c $(1)/flags
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(AUK_CPPFLAGS) $$(AUK_CFLAGS) -MMD -MP -c -o $$@ $$<
endef
$(foreach folder,$(sort $(BUILD) $(HOST)),$(eval $(call rule_of_objects,$(folder))))

$(HOST)/src/quantize/default_text.o: src/quantize/calibration.txt
$(KNOW_CUDA:%.c=$(BUILD)/%.o): $(BUILD)/flags.cuda
$(KNOW_CUDA:%.c=$(BUILD)/%.o): private AUK_CPPFLAGS += $(CUDA_CPPFLAGS)

# Sanitizers multiply what compilers need for kernels. Of the sets of one source, the baseline has all checks, the
# others those that find what wider vectors can do wrong.
KERNELS_CFLAGS = $(AUK_CFLAGS) $(if $(filter 1,$(SANITIZE)),$(if $(filter-out baseline,$*),$(FEWER_CHECKS)),-O3)
FEWER_CHECKS   = -fno-sanitize=null,alignment,object-size,pointer-overflow
$(HOST)/src/cpu/kernels.%.o: src/cpu/kernels.c $(HOST)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(AUK_CPPFLAGS) -DKERNELS_ISA=$* $(KERNELS_CFLAGS) $(ISA_FLAGS_$*) -MMD -MP -c -o $@ $<

ifeq ($(EMULATE),1)
# The stand-in for NCCL, which calls the program's emulated CUDA.
all gpu-programs: $(BUILD)/nccl/libnccl.so.2
$(BUILD)/nccl/libnccl.so.2: test/cuda/emulator/nccl/nccl.cpp $(BUILD)/flags.cuda
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -Wall -Wextra $(WERROR) -O2 -fPIC -shared -o $@ $<
AUK_LDFLAGS += $(foreach name,cudaLaunchHostFunc cudaStreamIsCapturing emulated_graphs,-Wl,--export-dynamic-symbol=$(name))
# Every .cu and .cuh is rewritten a little, to $(HOST)/emulated, and is C++ then.
CXX = g++
EMULATED_FLAGS = -std=c++17 -w -Wno-psabi -fopenmp -ffp-contract=off -D__CUDA_ARCH__=$(EMULATED_ARCH)0 \
  -DEMULATED_ARCH=$(EMULATED_ARCH) $(if $(filter 90,$(EMULATED_ARCH)),-D__CUDA_ARCH_FEAT_SM90_ALL -DAUK_HAS_SM90A) \
  -include cuda_runtime.h -Itest/cuda/emulator -I$(HOST)/emulated
EMULATED_HEADERS := $(patsubst %,$(HOST)/emulated/%,$(wildcard $(CUDA_FOLDERS:=/*.cuh) test/cuda/*.cuh))
COMPILE_EMULATED = sh scripts/compile_emulated.sh $@ $< $(CXX) $(EMULATED_FLAGS) $(AUK_CPPFLAGS) $(EMULATED_CFLAGS)
$(HOST)/emulated/%: % scripts/emulate.sed
	@mkdir -p $(@D)
	@sed -E -f scripts/emulate.sed $< >$@
$(BUILD)/%.o: $(HOST)/emulated/%.cu $(BUILD)/flags.cuda | $(EMULATED_HEADERS)
	@mkdir -p $(@D)
	$(Q)$(COMPILE_EMULATED)
$(BUILD)/%.o: %.cpp $(BUILD)/flags.cuda | $(EMULATED_HEADERS)
	@mkdir -p $(@D)
	$(Q)$(COMPILE_EMULATED)
# Without debugging information, which takes a ninth of the compiler's time.
EMULATED_CFLAGS = $(filter-out -g $(if $(filter 1,$(SANITIZE)),,-g1),$(CFLAGS)) $(filter -fsanitize% -fno-sanitize% -fno-omit%,$(AUK_CFLAGS))
# Kernels compile with -Og in less than half of the time of -O2, and run as fast on an emulated GPU, which mostly
# switches from thread to thread. Its matmuls are loops.
$(patsubst %.cu,$(BUILD)/%.o,$(wildcard $(CUDA_FOLDERS:=/*.cu))): private EMULATED_CFLAGS += -Og
$(BUILD)/test/cuda/emulator/tensor.o: private EMULATED_CFLAGS += -O3 -march=native -fno-sanitize=bounds
else
$(BUILD)/%.o: %.cu $(BUILD)/flags.cuda
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(AUK_CPPFLAGS) $(AUK_NVCCFLAGS) -MMD -MP -c -o $@ $<
endif

# Arithmetic that is the host's to the bit, which knows no fused multiply-add (base/sampler_math.h; rounding/groups.cu).
$(BUILD)/cuda/kernels/ops/sample.o $(BUILD)/cuda/kernels/ops/sample_top_k.o $(BUILD)/cuda/kernels/rounding/groups.o: private AUK_NVCCFLAGS += -fmad=false

-include $(patsubst %.o,%.d,$(HOST)/main.o $(foreach room,$(ROOMS),$(OBJECTS_$(room))) $(TESTS:=.o) $(FUZZERS:=.o)) \
  $(patsubst %.cu,$(BUILD)/%.d,$(wildcard test/cuda/*.cu))

test: $(BUILD)/auk $(TESTS)
	@$(if $(ONE_LINE),printf '\033[K';) $(PYTHON) scripts/run_tests.py $(BUILD) $(TESTS)

# The part of the tests that the sanitized form leaves out or shortens, and C tests of the CPU's kernels, which are -O3
# here. Sanitizers hide time, and memory that is in use.
SHORTENED  := $(shell grep -rlE 'SANITIZE|SAMPLE|nothing_stays|heap_in_use|mallinfo' test --include='test_*.c')
TESTS_PLAIN = $(filter $(call tests_of,cpu) $(SHORTENED:%.c=$(BUILD)/%),$(TESTS))
test-plain: $(BUILD)/auk $(TESTS_PLAIN)
	@$(PYTHON) scripts/run_tests.py $(BUILD) --plain $(TESTS_PLAIN)

test-unit: $(TESTS)
	@$(PYTHON) scripts/run_tests.py $(BUILD) --only-c $(TESTS)

# Transcripts of what the program makes of many inputs (test/data/transcripts): the tests that compare them write them
# anew. What changed is for people to review.
GOLDEN_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(shell grep -rl check_transcript test --include='test_*.c'))
GOLDEN_PYTESTS := $(wildcard test/commands/models/test_hostile_*.py) test/commands/models/test_architectures.py \
                  test/commands/models/test_program.py test/commands/models/test_inspect.py test/commands/test_transcripts.py
goldens: $(BUILD)/auk $(GOLDEN_PROGRAMS)
	@for program in $(GOLDEN_PROGRAMS); do GOLDENS=write $$program >/dev/null || exit 1; done
	@GOLDENS=write AUK=$(BUILD)/auk $(PYTHON) -m pytest -q $(GOLDEN_PYTESTS)
	@git --no-pager diff --stat test/data/transcripts

# Tests that need a GPU: test/cuda/*.cu, each a program, and test/cuda/test_*.py. Built elsewhere (STATIC=1), they run by
# scripts/test_gpu.sh alone.
# With PARTS that are programs alone, or pytests of auk, those programs alone are built.
GPU_PROGRAMS := $(patsubst %.cu,$(BUILD)/%,$(wildcard test/cuda/*.cu))
ifeq ($(filter-out test_% bench_% short fused,$(or $(PARTS),programs)),)
GPU_PROGRAMS := $(filter $(PARTS:%=$(BUILD)/test/cuda/%),$(GPU_PROGRAMS))
endif
gpu-programs: $(BUILD)/auk $(GPU_PROGRAMS)

$(BUILD)/test/cuda/%: $(BUILD)/test/cuda/%.o $(call archives,cuda) $(BUILD)/flags.link
	$(Q)$(CC) $(AUK_CFLAGS) $(LDFLAGS) $(AUK_LDFLAGS) -o $@ $< $(call libraries,cuda)

# PARTS of auk: NAME.cu, and nvcc-host for what is compiled with CUDA's headers, but not by nvcc.
cuda-objects: $(foreach part,$(PARTS),$(filter %/$(part:.cu=.o),$(OBJECTS_cuda))) \
              $(if $(filter nvcc-host,$(PARTS)),$(KNOW_CUDA:%.c=$(BUILD)/%.o))

test-gpu: gpu-programs
	@PYTHON=$(PYTHON) sh scripts/test_gpu.sh $(BUILD) $(if $(filter 1,$(EMULATE)),few) $(PARTS)

# libFuzzer's programs: test/fuzz/fuzz_*.c, each linked with what it uses of all rooms, built by clang in build/fuzz.
fuzz:
	@MAKE="$(MAKE)" sh scripts/fuzz.sh $(FUZZ_SECONDS)

# clang also reads every other C file of the program, as far as its own code, without making machine code of it.
fuzz-programs: $(FUZZERS) $(BUILD)/other-files-read

CLANG_READS = $(CC) $(AUK_CPPFLAGS) $(CUDA_CPPFLAGS) $(filter-out -fsanitize=%,$(AUK_CFLAGS)) -fsyntax-only \
  -Xclang -emit-llvm-only -Xclang -disable-llvm-passes
READ_ALONE := $(wildcard $(patsubst $(BUILD)/%.o,%.c,$(filter-out $(OBJECTS_fuzz),$(foreach room,commands terminal \
  engine cpu cuda,$(OBJECTS_$(room))))))
$(BUILD)/other-files-read: $(READ_ALONE) src/cpu/kernels.c $(wildcard src/*/*.h src/*/*/*.h src/*/*/*/*.h $(CUDA_FOLDERS:=/*.h)) $(BUILD)/flags
	$(Q)$(CLANG_READS) $(READ_ALONE)
	$(Q)$(foreach isa,$(ISAS),$(CLANG_READS) -DKERNELS_ISA=$(isa) $(ISA_FLAGS_$(isa)) src/cpu/kernels.c &&) touch $@

$(BUILD)/fuzz.a: $(OBJECTS_fuzz)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/test/fuzz/fuzz_%: $(BUILD)/test/fuzz/fuzz_%.o $(call archives,fuzz) $(BUILD)/flags.link
	$(Q)$(CC) $(AUK_CFLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $@ $< $(call libraries,fuzz)

# auk with calls of the C library that fail on demand (test/torture/faults.c): every failure once, with sanitizers
# (SANITIZE=0: without). With EMULATE=1 the calls are CUDA's, as on a GPU they are with `make torture-gpu`.
torture:
	@$(MAKE) SANITIZE=$(or $(SANITIZE),1) torture-program
	@$(PYTHON) scripts/torture.py $(BUILD)$(if $(SANITIZE),,/sanitize)/torture $(if $(filter 1,$(EMULATE)),--cuda) $(TORTURE)

torture-gpu: torture-program
	@$(PYTHON) scripts/torture.py $(BUILD)/torture --cuda $(TORTURE)

torture-program: $(BUILD)/torture

# The calls that ld passes to __wrap_NAME: of CUDA's, where this is no emulated GPU, which fails by itself.
WRAPPED := $(shell sed -n 's/.*__wrap_\([a-z]*\)(.*) {/\1/p' test/torture/faults.c)
ifeq ($(filter 1,$(EMULATE))-$(CUDA),-1)
FAULTS_CUDA := $(BUILD)/test/torture/faults_cuda.o
WRAPPED += cudaGetLastError $(shell sed -n 's/^FAULTY.\([A-Za-z_0-9]*\),.*/\1/p' test/torture/faults_cuda.c)
$(FAULTS_CUDA): private AUK_CPPFLAGS += $(CUDA_CPPFLAGS)
endif
$(BUILD)/test/torture/%.o: private AUK_CFLAGS += -Wno-missing-prototypes # ld alone refers to them
$(BUILD)/torture: $(HOST)/main.o $(BUILD)/test/torture/faults.o $(FAULTS_CUDA) $(call archives,commands) $(BUILD)/flags.link
	$(Q)$(CC) $(AUK_CFLAGS) $(LDFLAGS) $(AUK_LDFLAGS) $(WRAPPED:%=-Wl,--wrap=%) -o $@ $(filter %.o,$^) \
	  $(patsubst -lpcre2-8,$(or $(filter /%,$(shell $(CC) -print-file-name=libpcre2-8.a)),-lpcre2-8),$(call libraries,commands))

demo: $(BUILD)/auk
	@$(if $(ONE_LINE),printf '\033[K';) AUK=$(BUILD)/auk PYTHON=$(PYTHON) sh scripts/demo.sh

bench: $(BUILD)/auk
	@AUK=$(BUILD)/auk PYTHON=$(PYTHON) sh scripts/bench.sh

lint:
	@$(PYTHON) scripts/lint.py

format:
	clang-format -i $(filter %.c %.h %.cu %.cuh,$(shell git ls-files -co --exclude-standard))

# The manual page and the completions, which the program itself writes, go where man and the shells look for them.
SHARE        = $(DESTDIR)$(PREFIX)/share
PAGES       := man/man1/auk.1 bash-completion/completions/auk zsh/site-functions/_auk fish/vendor_completions.d/auk.fish

install: $(BUILD)/auk
	install -d $(DESTDIR)$(PREFIX)/bin $(addprefix $(SHARE)/,$(dir $(PAGES)))
	install -m 755 $(BUILD)/auk $(DESTDIR)$(PREFIX)/bin/auk
	$(BUILD)/auk man >$(SHARE)/man/man1/auk.1
	$(BUILD)/auk completions bash >$(SHARE)/bash-completion/completions/auk
	$(BUILD)/auk completions zsh >$(SHARE)/zsh/site-functions/_auk
	$(BUILD)/auk completions fish >$(SHARE)/fish/vendor_completions.d/auk.fish
	chmod 644 $(addprefix $(SHARE)/,$(PAGES))
	$(foreach lib,$(filter-out cmocka,$(BESIDE)),$(install_beside))

clean:
	rm -rf build $(BUILD)

help:
	@echo "make            build $(BUILD)/auk              (CC=clang, CFLAGS=..., CUDA=0, CUDA_ARCHS=..., BUILD=folder)"
	@echo "make test       build and run every test     (SANITIZE=1: with ASan and UBSan)"
	@echo "make goldens    let tests write their transcripts anew, for review"
	@echo "make test-gpu   the tests that need a GPU   (gpu-programs STATIC=1: build them for another machine;"
	@echo "                                             EMULATE=1: without a GPU, EMULATED_ARCH=80 or 90)"
	@echo "make demo       fetch a small real model and let it answer"
	@echo "make bench      measure the speed on this machine"
	@echo "make lint       check formatting, who includes whom, and more"
	@echo "make format     let clang-format rewrite the sources"
	@echo "make fuzz       feed the parsers hostile input, FUZZ_SECONDS=$(FUZZ_SECONDS) each (needs clang)"
	@echo "make torture    let every allocation, read, write ... fail once (TORTURE='--every N': a sample)"
	@echo "make torture-gpu    the same of CUDA's calls, on this machine's GPU"
	@echo "make install    install program, manual page, completions   (PREFIX=$(PREFIX), DESTDIR=)"
	@echo "make clean      remove everything that was built"
	@echo "Where a compiler or a library is missing: sh scripts/bootstrap.sh TARGET"
