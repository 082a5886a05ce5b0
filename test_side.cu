// test_side.cu: side networks in every mode against serial and against PyTorch, what they train and what they cost, and
// refusals.
#include "test/tuned_refs.h"

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

// ---- against PyTorch (dev/ref/make_side_refs.py) --------------------------------------------------------------------

static void side_as_pytorch(const char *base, const char *ref, int64_t reduction, int is_gated, int has_bias,
                            int trained)
{
    const GxSide side = {reduction, is_gated, has_bias, NULL};
    TestWish wish = GX_ZERO;
    wish.side = &side;
    as_pytorch(base, ref, &wish, trained);
}
TEST(a_side_network_of_a_llama_as_pytorch) { side_as_pytorch("llama_odd", "side_llama_odd", 3, 0, 0, 3 * 9 + 4 + 1); }
TEST(a_gated_side_network_with_biases_of_a_llama_with_shared_heads_as_pytorch)
{
    side_as_pytorch("llama_gqa", "side_llama_gqa", 8, 1, 1, 2 * (9 + 1) + 2 * (3 + 1));
}
TEST(a_side_network_of_a_bert_as_pytorch) { side_as_pytorch("bert_cls3", "side_bert_cls3", 2, 0, 0, 2 * 16 + 4 + 4); }
TEST(a_gated_side_network_with_biases_of_a_bert_as_pytorch)
{
    side_as_pytorch("bert_cls3", "side_bert_cls3_gated", 2, 1, 1, 2 * (16 + 1) + 2 * 4 + 4);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
