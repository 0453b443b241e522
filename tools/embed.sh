#!/usr/bin/env bash
# Assembly that holds files and their names: tools/embed.sh OUT "TEXTS" "OBJECTS". A text is named as it is
# included ("kern/all.cuh"); an object by its file name. Objects older than any text are left out.
set -eu
out=$1 texts=$2 objects=$3 n=0
kept=$texts
for o in $objects; do
    stale=
    for t in $texts; do [ "$t" -nt "$o" ] && stale=1; done
    if [ -n "$stale" ]; then
        echo "  old  $o: left out, make kern makes it again" >&2
    else
        kept="$kept $o"
    fi
done
{
    echo '.section .rodata'
    for f in $kept; do
        case $f in *.gz) name=${f##*/} ;; *) name=${f#src/} ;; esac
        n=$((n + 1))
        printf '.Lname%d: .asciz "%s"\n.balign 16\n.Ldata%d: .incbin "%s"\n.Lend%d:\n' $n "$name" $n "$f" $n
    done
    printf '.balign 8\n.globl mica_kern_file_count\n.hidden mica_kern_file_count\n'
    printf 'mica_kern_file_count: .quad %d\n' $n
    echo '.section .data.rel.ro,"aw"'
    printf '.balign 8\n.globl mica_kern_files\n.hidden mica_kern_files\nmica_kern_files:\n'
    i=0
    while [ $i -lt $n ]; do
        i=$((i + 1))
        echo ".quad .Lname$i, .Ldata$i, .Lend$i - .Ldata$i"
    done
    echo '.section .note.GNU-stack,"",@progbits'
} > "$out"
