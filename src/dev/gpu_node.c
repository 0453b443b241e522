/* What the system's files say of graphics cards, for the reasons a driver does not give: a device node that
 * is missing or may not be opened, a card on the bus that no driver has taken, a connector with a screen on
 * it. */
#include "dev/gpu_drv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* False: there is no such node. why is set when it is there and may not be opened. */
static bool check_node(const char *path, char *why, size_t n_why) {
    struct stat st;
    if (stat(path, &st) != 0) return false;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        return true;
    }
    if (errno != EACCES && errno != EPERM) return true; // busy and the like: the driver's to say
    char room[1024];
    struct group entry, *g = NULL;
    if (getgrgid_r(st.st_gid, &entry, room, sizeof room, &g) == 0 && g)
        snprintf(why, n_why, "no permission on %s: join the group %s (usermod -aG %s USER)", path, g->gr_name,
                 g->gr_name);
    else
        snprintf(why, n_why, "no permission on %s (group %u)", path, (unsigned)st.st_gid);
    return true;
}

static void check_render_nodes(char *why, size_t n_why) {
    for (int i = 128; i < 144 && !why[0]; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/dri/renderD%d", i);
        check_node(path, why, n_why);
    }
}

/* A number such as "0x10de" out of a file of one line; 0 when there is none. */
static unsigned long file_number(const char *folder, const char *bus, const char *name) {
    char path[700], text[32] = "";
    if ((size_t)snprintf(path, sizeof path, "%s/%s/%s", folder, bus, name) >= sizeof path) return 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    const bool ok = fgets(text, sizeof text, f) != NULL;
    fclose(f);
    return ok ? strtoul(text, NULL, 16) : 0;
}

bool gpu_node_pci(char *bus, size_t n_bus, gpu_kind kind, const char *folder) {
    enum { AMD = 0x1002, NVIDIA = 0x10de, DISPLAY = 0x03, ACCELERATOR = 0x12 }; // vendors; base classes
    const unsigned long vendor = kind == GPU_HIP ? AMD : kind == GPU_CUDA ? NVIDIA : 0;
    bool found = false;
    bus[0] = 0;
    DIR *d = vendor ? opendir(folder) : NULL;
    if (!d) return false;
    for (struct dirent *e; !found && (e = readdir(d));) {
        if (e->d_name[0] == '.' || file_number(folder, e->d_name, "vendor") != vendor) continue;
        const unsigned long base = file_number(folder, e->d_name, "class") >> 16;
        found = base == DISPLAY || base == ACCELERATOR;
        if (found) snprintf(bus, n_bus, "%.20s", e->d_name);
    }
    closedir(d);
    return found;
}

void gpu_node_check(gpu_kind kind, bool *seen, char *why, size_t n_why) {
    char bus[24];
    why[0] = 0;
    *seen = false;
    if (kind == GPU_CUDA) *seen = check_node("/dev/nvidia0", why, n_why);
    if (kind == GPU_HIP) *seen = check_node("/dev/kfd", why, n_why);
    if (kind == GPU_HIP && *seen && !why[0]) check_render_nodes(why, n_why);
    if (*seen || !gpu_node_pci(bus, sizeof bus, kind, "/sys/bus/pci/devices")) return;
    *seen = true;
    if (kind == GPU_CUDA)
        snprintf(why, n_why,
                 "PCI %s: no /dev/nvidia0: NVIDIA's kernel driver is not loaded: apt install nvidia-driver "
                 "(Debian), ubuntu-drivers install (Ubuntu); a container needs the device handed in",
                 bus);
    else
        snprintf(why, n_why,
                 "PCI %s: no /dev/kfd: the kernel's amdgpu driver is not loaded: modprobe amdgpu, and apt "
                 "install firmware-amd-graphics (Debian); a container needs /dev/kfd and /dev/dri handed in",
                 bus);
}

static bool file_says(const char *path, const char *word) {
    char text[32] = "";
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(text, sizeof text, f) != NULL && strncmp(text, word, strlen(word)) == 0;
    fclose(f);
    return ok;
}

/* /sys/bus/pci/devices/BUS/drm/card1/card1-DP-1/status */
static bool connected(const char *card_path) {
    DIR *d = opendir(card_path);
    bool found = false;
    if (!d) return false;
    for (struct dirent *e; !found && (e = readdir(d));) {
        char path[600];
        if (strncmp(e->d_name, "card", 4) != 0) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s/status", card_path, e->d_name) < sizeof path)
            found = file_says(path, "connected");
    }
    closedir(d);
    return found;
}

bool gpu_node_display(const char *bus) {
    char folder[64], path[340];
    bool found = false;
    if (!bus[0]) return false;
    snprintf(folder, sizeof folder, "/sys/bus/pci/devices/%.24s/drm", bus);
    DIR *d = opendir(folder);
    if (!d) return false;
    for (struct dirent *e; !found && (e = readdir(d));) {
        if (strncmp(e->d_name, "card", 4) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        found = connected(path);
    }
    closedir(d);
    return found;
}
