#pragma once

#include "common/sm90_attention/work.h"
