#include "src/base/subprocess.h"
