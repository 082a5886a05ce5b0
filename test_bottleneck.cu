// test_bottleneck.cu: bottleneck adapters in every mode against serial and against PyTorch, what they train and what
// they cost, and refusals.
#include "test/tuned.h"

TEST(adapters_in_every_mode_are_serial) { check_all("LLaMA", 0, 1); }
TEST(adapters_beside_norms_that_are_trained_in_every_mode_are_serial) { check_all("LLaMA", 0, 2); }

// BERT's have their input's bias, dropout and a norm behind them.
TEST(adapters_of_models_with_picked_rows_in_every_mode_are_serial)
{
    for (int i = 0; i < SUBJECTS; i++) {
        test_subject = subjects[i];
        check_all(subject_names[i], 0, 1);
    }
    test_subject = NULL;
}
TEST(adapters_behind_biases_that_are_trained_in_every_mode_are_serial)
{
    for (int i = 0; i < 4; i++) {
        test_subject = subjects[i];
        check_all(subject_names[i], 0, 3);
    }
    test_subject = NULL;
}
TEST(adapters_in_all_18_triples_of_methods_are_serial) { check_all_triples(0, 1); }

int main(int argc, char **argv) { return test_main(argc, argv); }
