// SPDX-License-Identifier: MIT
// orb_published.c: Orb models known by name. The authors' bucket has the files; "orb-v3" is the conservative one for materials.
#include "model/orb/orb_model.h"

#define SOURCE(name, file)                                                                                                       \
    "its weights are public (Apache-2.0): https://orbitalmaterials-public-models.s3.us-west-1.amazonaws.com/forcefields/" file   \
    ".ckpt; then: mlff import THAT_FILE --install " name "; untrained, to measure speed: mlff new --arch " name " -o FILE"
#define PUBLISHED(name, file, settings)                                                                                          \
    {                                                                                                                            \
        {name}, SOURCE(name, file), settings                                                                                     \
    }

static const mlff_setting small[] = {{"n_layers", "10"}, {0}}, smallest[] = {{"n_layers", "5"}, {0}},
                          uncapped[] = {{"max_neighbors", "120"}, {0}},
                          of_charges[] = {{"max_neighbors", "120"}, {"conditioned", "true"}, {0}};

const model_published orb_v2_published[] = {PUBLISHED("orb-v2", "orb-v2-20241011", NULL),
                                            PUBLISHED("orb-mptraj-only-v2", "orb-mptraj-only-v2-20241014", NULL),
                                            PUBLISHED("orb-d3-v2", "orb-d3-v2-20241011", NULL),
                                            PUBLISHED("orb-d3-sm-v2", "orb-d3-sm-v2-20241011", small),
                                            PUBLISHED("orb-d3-xs-v2", "orb-d3-xs-v2-20241011", smallest),
                                            {.names = {NULL}}};
const model_published orb_v3_direct_published[] = {
    PUBLISHED("orb-v3-direct-20-omat", "orb-v3/orb-v3-direct-20-omat-20250404", NULL),
    PUBLISHED("orb-v3-direct-20-mpa", "orb-v3/orb-v3-direct-20-mpa-20250404", NULL),
    PUBLISHED("orb-v3-direct-inf-omat", "orb-v3/orb-v3-direct-inf-omat-20250404", uncapped),
    PUBLISHED("orb-v3-direct-inf-mpa", "orb-v3/orb-v3-direct-inf-mpa-20250404", uncapped),
    PUBLISHED("orb-v3-direct-omol", "orb-v3-direct-omol-20250820", of_charges),
    {.names = {NULL}}};
const model_published orb_v3_conservative_published[] = {
    PUBLISHED("orb-v3-conservative-20-omat", "orb-v3/orb-v3-conservative-20-omat-20250404", NULL),
    PUBLISHED("orb-v3-conservative-20-mpa", "orb-v3/orb-v3-conservative-20-mpa-20250404", NULL),
    {{"orb-v3-conservative-inf-omat", "orb-v3"},
     SOURCE("orb-v3-conservative-inf-omat", "orb-v3/orb-v3-conservative-inf-omat-20250404"),
     uncapped},
    PUBLISHED("orb-v3-conservative-inf-mpa", "orb-v3/orb-v3-conservative-inf-mpa-20250404", uncapped),
    PUBLISHED("orb-v3-conservative-omol", "orb-v3-conservative-omol-20250820", of_charges),
    {.names = {NULL}}};
