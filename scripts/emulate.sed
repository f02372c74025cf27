# emulate.sed - the two spellings of CUDA C++ that a C++ compiler cannot read, as test/cuda/emulator/emulator.h has them.
s/extern __shared__ (__align__\([0-9]+\) )?([A-Za-z_][A-Za-z_0-9 ]*) ([a-z_]+)\[\];/\2 *\3 = (\2 *)emulator::dynamic_shared();/
s/([A-Za-z_][A-Za-z_0-9]*(<[A-Za-z_0-9, ]*>)?)<<<(.*)>>>\(/emulator::launcher(\3)("\1", [](auto... a) { \1(a...); }, /
