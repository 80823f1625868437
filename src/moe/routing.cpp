#include "moe/routing.h"
