// A library that needs another, and does not say where it is.
extern "C" int varve_needed();
extern "C" int varve_opener(int) { return varve_needed() + 1; }
extern "C" const char* varve_words() { return "words"; }
