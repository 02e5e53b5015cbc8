#include "src/base/files.h"
