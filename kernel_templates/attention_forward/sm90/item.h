#pragma once

#include "common/sm90_attention/item.h"
