#pragma once

#include "common/sm90_attention/queries.h"
