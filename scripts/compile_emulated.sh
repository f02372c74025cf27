#!/bin/sh
# compile_emulated.sh OBJECT SOURCE COMPILER FLAG... - compiles C++ of the emulated GPU; called by the Makefile.
#
# Most kernels are the same text on every chip once they are preprocessed. So where the build of another chip
# (build/emulated-80 beside build/emulated-90) has made an object of the same text with the same flags, it is copied.
# Beside OBJECT.o lies OBJECT.key, the hash of both, as long as the object is whole.
set -eu
object=$1 source=$2
shift 2
name=${object%.o}
rm -f "$name.key"
"$@" -x c++ -E -MMD -MP -MF "$name.d" -MT "$object" -o "$name.ii" "$source"
key=$({
  for flag; do
    case $flag in
    -D* | -I*) ;; # which made the text
    *) echo "$flag" ;;
    esac
  done
  grep -v '^# [0-9]' "$name.ii" # without the names of files
} | sha256sum)

# The same object of every emulated chip; of this one alone where its folder is not named for the chip.
case $object in
*/emulated-[0-9]*/*) within=${object#*/emulated-} others="${object%%/emulated-*}/emulated-*/${within#*/}" ;;
*) others=$object ;;
esac
made=
for other in $others; do
  [ "$other" != "$object" ] && [ "$(cat "${other%.o}.key" 2>/dev/null)" = "$key" ] || continue
  cp "$other" "$object" && made=1 && break
done
[ "$made" ] || "$@" -x c++-cpp-output -c -o "$object" "$name.ii"
rm "$name.ii"
echo "$key" >"$name.key"
