// A library that another needs.
extern "C" int varve_needed() { return 41; }
