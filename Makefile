# auk: `make help` says what there is to make.
#
# One archive a room (src/base -> build/base.a), linked in the order of who may know whom, so that an include or a
# call upwards fails to link. Objects go to $(BUILD), headers are tracked, nothing is written beside the sources.

BUILD   ?= $(if $(SANITIZE),build/sanitize,build)
PREFIX  ?= /usr/local
CFLAGS  ?= -O2 -g
VERSION := 0.1.0

.DEFAULT_GOAL := all
.PHONY: all test test-unit test-cli demo lint format install clean help

PACKAGES := libcjson libutf8proc libpcre2-8
CPPFLAGS += -D_GNU_SOURCE -DAUK_VERSION='"$(VERSION)"' -Isrc -I.
WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
# No contraction and no fast math: results depend on the source, not on the compiler's mood.
AUK_CFLAGS := -std=c11 $(WARN) -fopenmp -ffp-contract=off $(shell pkg-config --cflags $(PACKAGES)) $(CFLAGS)
LDLIBS   := $(shell pkg-config --libs $(PACKAGES)) -lm
ifdef SANITIZE
AUK_CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
endif

# --- rooms, highest first; each may know those after it
ROOMS          := commands engine cpu model tokenizer base
DIR_commands   := src/commands
DIR_engine     := src/engine
DIR_cpu        := src/cpu
DIR_model      := src/model
DIR_tokenizer  := tokenizer
DIR_base       := src/base
BELOW_commands := commands cpu engine model tokenizer base
BELOW_engine   := engine cpu engine model base
BELOW_cpu      := cpu engine model base
BELOW_model    := model base
BELOW_tokenizer := tokenizer base
BELOW_base     := base

objects  = $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard $(1)/*.c)))
archives = $(foreach room,$(BELOW_$(1)),$(BUILD)/$(room).a)

# src/cpu/kernels.c is compiled once for each instruction set; the program picks one when it starts.
MACHINE := $(shell $(CC) -dumpmachine)
ifneq ($(filter x86_64%,$(MACHINE)),)
ISAS := baseline avx2 avx512
endif
ISAS ?= baseline
ISA_FLAGS_avx2   := -mavx2 -mfma -mf16c
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512
KERNELS := $(ISAS:%=$(BUILD)/src/cpu/kernels.%.o)

all: $(BUILD)/auk

define room_archive
$(BUILD)/$(1).a: $(filter-out $(BUILD)/src/cpu/kernels.o,$(call objects,$(DIR_$(1)))) $(if $(filter cpu,$(1)),$(KERNELS))
	@rm -f $$@
	$$(AR) rcs $$@ $$^
endef
$(foreach room,$(ROOMS),$(eval $(call room_archive,$(room))))

$(BUILD)/auk: $(BUILD)/main.o $(sort $(call archives,commands))
	$(CC) $(AUK_CFLAGS) $(LDFLAGS) -o $@ $< -Wl,--start-group $(call archives,commands) -Wl,--end-group $(LDLIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(AUK_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/src/cpu/kernels.%.o: src/cpu/kernels.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -DKERNELS_ISA=$* $(AUK_CFLAGS) -O3 -ffp-contract=fast $(ISA_FLAGS_$*) -MMD -MP -c -o $@ $<

# --- tests: test/ROOM/test_*.c, each a cmocka program linked with its room and those below
TESTS := $(foreach room,$(ROOMS),$(patsubst %.c,$(BUILD)/%,$(wildcard test/$(room)/test_*.c)))

define room_tests
$(BUILD)/test/$(1)/test_%: $(BUILD)/test/$(1)/test_%.o $(sort $(call archives,$(1)))
	$$(CC) $$(AUK_CFLAGS) $$(LDFLAGS) -o $$@ $$< -Wl,--start-group $(call archives,$(1)) -Wl,--end-group -lcmocka $$(LDLIBS)
endef
$(foreach room,$(ROOMS),$(eval $(call room_tests,$(room))))

test: test-unit test-cli

test-unit: $(TESTS)
	@set -e; for t in $(TESTS); do echo "== $$t"; $$t; done

clean:
	rm -rf build

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.SECONDARY:
