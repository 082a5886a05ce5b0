// galaxy.h: trains and fine-tunes transformers in plain C on whatever machines there are. This header includes the
// whole library but for the CUDA code (galaxy_cuda.cuh).
//
// HOW TO USE IT
//     #define GALAXY_IMPLEMENTATION      in exactly one file of a program, in which the functions are compiled
//     #include "galaxy.h"
//   A bare `cc program.c -lm -lpthread` builds it, in seconds; with -O2 in half a minute, and it computes some 7 times as
//   fast, with -O2 -march=native -fopenmp 30 times. With -std=c11 these two lines come before all system headers.
//   A project compiles the library once, beside files that only include galaxy.h; here with all that tokenizers need:
//     printf '#define GALAXY_IMPLEMENTATION\n#include "galaxy.h"\n' >galaxy.c
//     cc -O2 -march=native -fopenmp -DGX_WITH_JANSSON -DGX_WITH_UTF8PROC -DGX_WITH_PCRE2 -c galaxy.c
//     cc -O2 program.c galaxy.o -fopenmp -ljansson -lutf8proc -lpcre2-8 -lm -lpthread
//   Defined before the implementation (and linked), these bring in libraries, each behind one header:
//     GX_WITH_ONEDNN   cpu/gemm_onednn.h  matrix products by oneDNN (-ldnnl); without it by Galaxy's own kernels
//     GX_WITH_JANSSON  io/json.h      JSON (-ljansson); without it configurations and checkpoints say GX_ERR_UNSUPPORTED
//     GX_WITH_UTF8PROC text/unicode.h accents, normal forms, for tokenizers (-lutf8proc); without it GX_ERR_UNSUPPORTED
//     GX_WITH_PCRE2    text/regex.h   the words of GPT-2's, LLaMA-3's, T5's tokenizers (-lpcre2-8); without it the same
//     GX_WITH_MPI      comm/mpi.h     ranks by mpirun (mpicc); without it ranks are threads, or processes by TCP
//     -fopenmp                      several CPU threads per rank
//   Any header can also be included by itself.
//
// WHAT A PROGRAM DOES
//   A rank has one GxContext. Operations take it first, then outputs, then inputs, then sizes; they return nothing: the
//   first error stays in g->error, and after it operations do nothing. Memory comes from an arena whose size is known
//   before it is allocated.
//     GxContext g = GX_ZERO;
//     g.device = gx_device_cpu();
//     gx_rms_norm_forward(&g, y, rstd, x, w, rows, columns, 1e-5f, GX_F32);
//     if (gx_failed(&g)) fprintf(stderr, "%s\n", g.error.message);
//
// WHAT IT DOES NOT DO
//   It does not print, exit, or keep state outside the context: what it says goes to the context's logger and reporter.
//   The exceptions: run/launch.h is a program's main, which starts the program again where OMP_WAIT_POLICY is not set,
//   gives each rank a logger and a reporter that print, catches signals and may exit; a failed rank under MPI ends the
//   job by MPI_Abort; matrix products set OpenMP's number of threads for the calling thread.
//
// THE HOUSE, in the order of dependency (docs/architecture.md tells how they work together)
//   base      errors, memory, random numbers, tensors and where they lie, the context
//   ops       operations: their contracts            cpu   how they are computed on the CPU
//   comm      collectives, engines                   parallel   which rank has which part; steps as lists of actions
//   model     units of (core, CON) pairs, modes, LLaMA, BERT
//   io        files and their formats                text  tokenizers, formats of conversations
//   data      corpora, records, conversations as samples
//   task      training objectives: their data, losses and metrics
//   run       the interpreter of steps, the trainer, checkpoints
#ifndef GALAXY_H
#define GALAXY_H
#include "galaxy/base/common.h"
#include "galaxy/base/status.h"
#include "galaxy/base/text.h"
#include "galaxy/base/fields.h"
#include "galaxy/base/log.h"
#include "galaxy/base/dtype.h"
#include "galaxy/base/random.h"
#include "galaxy/base/arena.h"
#include "galaxy/base/quantized.h"
#include "galaxy/base/tensors.h"
#include "galaxy/base/recorder.h"
#include "galaxy/base/context.h"
#include "galaxy/base/mesh.h"
#include "galaxy/base/partition.h"
#include "galaxy/base/store.h"

#include "galaxy/ops/device.h"
#include "galaxy/ops/memory.h"
#include "galaxy/ops/elementwise.h"
#include "galaxy/ops/embedding.h"
#include "galaxy/ops/rows.h"
#include "galaxy/ops/tuned.h"
#include "galaxy/ops/norm.h"
#include "galaxy/ops/dropout.h"
#include "galaxy/ops/residual.h"
#include "galaxy/ops/linear.h"
#include "galaxy/ops/quantize.h"
#include "galaxy/ops/quantized_linear.h"
#include "galaxy/ops/rope.h"
#include "galaxy/ops/attention.h"
#include "galaxy/ops/activation.h"
#include "galaxy/ops/gate.h"
#include "galaxy/ops/columns.h"
#include "galaxy/ops/loss.h"
#include "galaxy/ops/optimizer.h"

#include "galaxy/cpu/cpu.h"
#include "galaxy/cuda/cuda.h"

#include "galaxy/comm/engine.h"
#include "galaxy/comm/collective.h"
#include "galaxy/comm/flight.h"
#include "galaxy/comm/device_buffers.h"
#include "galaxy/comm/captured.h"
#include "galaxy/comm/comm.h"
#include "galaxy/comm/threads.h"
#include "galaxy/comm/mpi.h"
#include "galaxy/comm/nccl.h"
#include "galaxy/comm/sockets.h"
#include "galaxy/comm/rendezvous.h"
#include "galaxy/comm/tcp.h"

#include "galaxy/parallel/layout.h"
#include "galaxy/parallel/grads.h"
#include "galaxy/parallel/values.h"
#include "galaxy/parallel/boxes.h"
#include "galaxy/parallel/steps.h"
#include "galaxy/parallel/steps_order.h"
#include "galaxy/parallel/steps_make.h"
#include "galaxy/parallel/steps_check.h"
#include "galaxy/parallel/steps_ranks.h"
#include "galaxy/parallel/steps_write.h"
#include "galaxy/parallel/steps_place.h"

#include "galaxy/model/rows.h"
#include "galaxy/model/model.h"
#include "galaxy/model/unit.h"
#include "galaxy/model/mode.h"
#include "galaxy/model/lora.h"
#include "galaxy/model/tuned.h"
#include "galaxy/model/scale.h"
#include "galaxy/model/linear.h"
#include "galaxy/model/bottleneck.h"
#include "galaxy/model/side.h"
#include "galaxy/model/prompt.h"
#include "galaxy/model/kv_cache.h"
#include "galaxy/model/att.h"
#include "galaxy/model/mlp.h"
#include "galaxy/model/enter.h"
#include "galaxy/model/con.h"
#include "galaxy/model/embed.h"
#include "galaxy/model/head.h"
#include "galaxy/model/labels.h"
#include "galaxy/model/vectors.h"
#include "galaxy/model/cores.h"
#include "galaxy/model/llama.h"
#include "galaxy/model/bert.h"

#include "galaxy/io/files.h"
#include "galaxy/io/file_kind.h"
#include "galaxy/io/json.h"
#include "galaxy/io/json_fields.h"
#include "galaxy/io/json_keys.h"
#include "galaxy/io/folder.h"
#include "galaxy/io/model_folder.h"
#include "galaxy/io/event_file.h"
#include "galaxy/io/claim.h"
#include "galaxy/io/config.h"
#include "galaxy/io/safetensors.h"
#include "galaxy/io/bnb.h"
#include "galaxy/io/gguf_blocks.h"
#include "galaxy/io/gguf.h"
#include "galaxy/io/npy.h"
#include "galaxy/io/generation_config.h"

#include "galaxy/text/tokenizer_config.h"
#include "galaxy/text/sentence_modules.h"
#include "galaxy/text/tokenizer_kind.h"
#include "galaxy/text/byte_tokens.h"
#include "galaxy/text/unicode.h"
#include "galaxy/text/pieces.h"
#include "galaxy/text/wordpiece.h"
#include "galaxy/text/wordpiece_files.h"
#include "galaxy/text/regex.h"
#include "galaxy/text/charsmap.h"
#include "galaxy/text/words.h"
#include "galaxy/text/words_normalize.h"
#include "galaxy/text/words_encode.h"
#include "galaxy/text/words_decode.h"
#include "galaxy/text/words_reading.h"
#include "galaxy/text/words_steps.h"
#include "galaxy/text/words_added.h"
#include "galaxy/text/words_frame.h"
#include "galaxy/text/words_files.h"
#include "galaxy/text/bpe.h"
#include "galaxy/text/bpe_files.h"
#include "galaxy/text/unigram.h"
#include "galaxy/text/unigram_files.h"
#include "galaxy/text/tokenizer.h"
#include "galaxy/text/tokenizer_add.h"
#include "galaxy/text/tokenizer_keys.h"
#include "galaxy/text/gguf_tokenizer.h"
#include "galaxy/text/template_value.h"
#include "galaxy/text/template_methods.h"
#include "galaxy/text/template_operators.h"
#include "galaxy/text/template_filters.h"
#include "galaxy/text/template_lex.h"
#include "galaxy/text/template_parse.h"
#include "galaxy/text/template_render.h"
#include "galaxy/text/template.h"
#include "galaxy/text/chat_turn.h"
#include "galaxy/text/chat_named.h"
#include "galaxy/text/chat_template.h"
#include "galaxy/text/chat.h"
#include "galaxy/text/chat_find.h"
#include "galaxy/text/chat_save.h"
#include "galaxy/text/text_stream.h"

#include "galaxy/data/bad_lines.h"
#include "galaxy/data/csv.h"
#include "galaxy/data/record_cache.h"
#include "galaxy/data/merge_train.h"
#include "galaxy/data/token_file.h"
#include "galaxy/data/text_ends.h"
#include "galaxy/data/packing.h"
#include "galaxy/data/dataset.h"
#include "galaxy/data/dataset_hash.h"
#include "galaxy/data/records.h"
#include "galaxy/data/chat_records.h"
#include "galaxy/data/corpus.h"
#include "galaxy/data/corpus_write.h"
#include "galaxy/data/dataset_tokens.h"
#include "galaxy/data/chat_tokens.h"
#include "galaxy/data/dataset_chat.h"
#include "galaxy/data/train_texts.h"
#include "galaxy/data/wordpiece_train.h"
#include "galaxy/data/bpe_train.h"
#include "galaxy/data/pairs.h"
#include "galaxy/data/blend.h"
#include "galaxy/data/labels.h"
#include "galaxy/data/model_labels.h"
#include "galaxy/data/score_requests.h"

#include "galaxy/task/task.h"
#include "galaxy/task/text_batch.h"
#include "galaxy/task/text_tokenizer.h"
#include "galaxy/task/sentences.h"
#include "galaxy/task/token_masks.h"
#include "galaxy/task/confusion.h"
#include "galaxy/task/scores.h"
#include "galaxy/task/sampling.h"
#include "galaxy/task/decode.h"
#include "galaxy/task/likelihood.h"
#include "galaxy/task/generate.h"
#include "galaxy/task/show_data.h"
#include "galaxy/task/chat_format.h"
#include "galaxy/task/causal_lm.h"
#include "galaxy/task/dpo.h"
#include "galaxy/task/masked_lm.h"
#include "galaxy/task/labelled_texts.h"
#include "galaxy/task/predictions.h"
#include "galaxy/task/bag_of_words.h"
#include "galaxy/task/classification_labels.h"
#include "galaxy/task/classification_texts.h"
#include "galaxy/task/classification.h"
#include "galaxy/task/text_groups.h"
#include "galaxy/task/embedding.h"

#include "galaxy/run/module_pattern.h"
#include "galaxy/run/peft.h"
#include "galaxy/run/processors.h"
#include "galaxy/run/schedule.h"
#include "galaxy/run/optimizer.h"
#include "galaxy/run/graphs.h"
#include "galaxy/run/interpreter.h"
#include "galaxy/run/profile.h"
#include "galaxy/run/metrics.h"
#include "galaxy/run/run_log.h"
#include "galaxy/run/process_memory.h"
#include "galaxy/run/plot.h"
#include "galaxy/run/plot_confusion.h"
#include "galaxy/run/quantize.h"
#include "galaxy/run/tuning.h"
#include "galaxy/run/help.h"
#include "galaxy/run/other_names.h"
#include "galaxy/run/options.h"
#include "galaxy/run/epochs.h"
#include "galaxy/run/tensorboard.h"
#include "galaxy/run/task_choice.h"
#include "galaxy/run/family_json.h"
#include "galaxy/run/llama_family.h"
#include "galaxy/run/bert_family.h"
#include "galaxy/run/source_folder.h"
#include "galaxy/run/agree.h"
#include "galaxy/run/tensor_file.h"
#include "galaxy/run/tensor_save.h"
#include "galaxy/run/tensor_match.h"
#include "galaxy/run/tensor_load.h"
#include "galaxy/run/adapter_match.h"
#include "galaxy/run/adapter.h"
#include "galaxy/run/gguf_folder.h"
#include "galaxy/run/train_state.h"
#include "galaxy/run/checkpoint.h"
#include "galaxy/run/checkpoint_load.h"
#include "galaxy/run/output.h"
#include "galaxy/run/gguf_adapter.h"
#include "galaxy/run/resume.h"
#include "galaxy/run/plan.h"
#include "galaxy/run/report.h"
#include "galaxy/run/notes.h"
#include "galaxy/run/watch.h"
#include "galaxy/run/launch.h"
#include "galaxy/run/machine.h"
#include "galaxy/run/inference.h"
#include "galaxy/run/merge.h"
#include "galaxy/run/side_cache.h"
#include "galaxy/run/trainer.h"
#include "galaxy/run/autotune.h"
#include "galaxy/run/best.h"
#include "galaxy/run/buffers.h"
#include "galaxy/run/stages.h"
#include "galaxy/run/setup.h"
#include "galaxy/run/write_options.h"
#include "galaxy/run/writer.h"
#include "galaxy/run/writing.h"
#include "galaxy/run/conversation.h"
#include "galaxy/run/scoring.h"

#ifndef GX_FAMILY
#define GX_FAMILY gx_llama // of train_tp.cu and its siblings: -DGX_FAMILY=gx_bert for another one
#endif
#ifndef GX_TASK
#define GX_TASK (*GX_FAMILY.tasks[0]) // of these: what they train for, if --task does not say it
#endif
#endif

#if defined(GX_WITH_CUDA) && (defined(__CUDACC__) || defined(GX_EMU)) // a program in one file, compiled by nvcc
#include "galaxy_cuda.cuh"
#endif
