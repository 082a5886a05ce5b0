// test_side.cu: side networks in every mode against serial and against PyTorch, what they train and what they cost, and
// refusals.
#include "test/tuned.h"

static void check_side(const char *subject, int which)
{
    tuned_side = which;
    check_all(subject, 0, 0);
    tuned_side = 0;
}

TEST(side_networks_in_every_mode_are_serial) { check_side("LLaMA", 1); }
TEST(gated_side_networks_with_biases_in_every_mode_are_serial) { check_side("LLaMA", 2); }
TEST(side_networks_with_a_norm_that_is_trained_in_every_mode_are_serial) { check_side("LLaMA", 3); }
TEST(side_networks_of_models_with_picked_rows_in_every_mode_are_serial)
{
    for (int i = 0; i < SUBJECTS; i++) {
        test_subject = subjects[i];
        check_side(subject_names[i], 1 + i % 2);
    }
    test_subject = NULL;
}

int main(int argc, char **argv) { return test_main(argc, argv); }
