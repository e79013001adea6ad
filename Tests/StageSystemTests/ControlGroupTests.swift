import SystemPackage
import Testing

@testable import StageSystem

struct ControlGroupTests {
    /// Rows: a line of `cgroup`, one of `mountinfo`, and the directory of the group.
    @Test(
        arguments: [
            ("0::/user.slice/app", "/ /sys/fs/cgroup", "/sys/fs/cgroup/user.slice/app"),
            ("0::/", "/ /sys/fs/cgroup", "/sys/fs/cgroup"),
            ("0::/docker/1/app", "/docker/1 /sys/fs/cgroup", "/sys/fs/cgroup/app"),
            ("0::/docker/1", "/docker/1 /sys/fs/cgroup", "/sys/fs/cgroup"),
            ("0::/docker/12", "/docker/1 /sys/fs/cgroup", nil),
            // systemd escapes '-' in names as '\x2d', and the kernel '\' in this table.
            (
                #"0::/app-a\x2db.slice/run"#, #"/app-a\134x2db.slice /sys/fs/cgroup"#,
                "/sys/fs/cgroup/run"
            ),
            ("0::/app", #"/ /mnt/with\040space"#, "/mnt/with space/app"),
            ("1:memory:/app", "/ /sys/fs/cgroup", nil),
        ] as [(String, String, FilePath?)]
    )
    func theGroupIsFoundBelowItsMount(_ group: String, _ mount: String, _ path: FilePath?) {
        let found = ControlGroup.path(
            groups: [group[...]],
            mounts: [
                "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
                "30 22 0:26 \(mount) rw,nosuid shared:4 - cgroup2 cgroup2 rw",
            ],
            in: .unified
        )
        #expect(found == path)
    }
}
