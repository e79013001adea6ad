import StageSystem
import SystemPackage
import Testing

struct MountTests {
    private static let table = """
        22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
        23 22 8:2 / /var rw,noatime - ext4 /dev/sda2 rw
        24 23 8:3 /sub /var/a\\040b rw,nosuid,relatime master:2 - btrfs /dev/sda3 rw
        25 22 8:4 / /srv rw - xfs /dev/sda4 rw
        26 25 8:5 / /srv ro,noatime - xfs /dev/sda5 rw
        27 22 0:1 / broken
        """

    @Test(arguments: [
        ("/home", "/", ["rw", "relatime"]), ("/var/lib", "/var", ["rw", "noatime"]),
        ("/var/a b/c", "/var/a b", ["rw", "nosuid", "relatime"]),
        ("/variable", "/", ["rw", "relatime"]),
        // The later mount hides the earlier one.
        ("/srv/x", "/srv", ["ro", "noatime"]),
    ])
    func aPathIsOnTheLastMountAboveIt(path: String, point: String, options: [String]) {
        let mount = Mount.holding(FilePath(path), in: Self.table)
        #expect(mount?.point == FilePath(point))
        #expect(mount?.options == Set(options))
    }

    @Test func aTableThatIsCutOffHasMountsOfItsWholeLines() {
        let bytes = Array(Self.table.utf8)
        for count in bytes.indices {
            let text = String(decoding: bytes.prefix(count), as: UTF8.self)
            let mount = Mount.holding("/home", in: text)
            #expect(mount == nil || mount?.point == "/")
        }
    }

    @Test func theRootIsMounted() {
        #expect(Mount.holding("/")?.point == "/")
        #expect(Mount.holding("/no/such/file") == nil)
    }
}
