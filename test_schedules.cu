// test_schedules.cu: schedules that are spelled out (train_pp.cu): do they write what the generators make, is what is
// wrong in one refused by name, and does a program that runs one leave behind what train_llama does? And are the
// pictures of docs/schedules those that dev/draw_schedules.cu draws?
#include "galaxy/parallel/steps_ranks.h"
#include "galaxy/parallel/steps_write.h"
#include "test/program_runs.h"

enum { RANKS = 5, MICRO_BATCHES = 12, UNITS = 24 };
