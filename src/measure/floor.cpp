#include "measure/floor.h"
