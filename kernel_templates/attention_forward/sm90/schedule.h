#pragma once

#include "common/sm90_attention/schedule.h"
