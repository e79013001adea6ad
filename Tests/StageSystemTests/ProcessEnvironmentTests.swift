import StageSystem
import Testing

struct ProcessEnvironmentTests {
    /// The environment that a hostile user prepares for a process of root.
    private static let hostile = [
        "HOME": "/home/user", "XDG_CONFIG_HOME": "/home/user", "XDG_DATA_HOME": "/home/user",
        "XDG_STATE_HOME": "/home/user", "XDG_RUNTIME_DIR": "/home/user", "TMPDIR": "/home/user",
        "STAGEPACK_SOCKET": "/home/user/socket", "STAGEPACK_APP": "net.example.user",
        "CURL_CA_BUNDLE": "/home/user/ca", "SSL_CERT_FILE": "/home/user/ca",
        "SSL_CERT_DIR": "/home/user", "SSLKEYLOGFILE": "/etc/passwd", "CURL_HOME": "/home/user",
        "OPENSSL_CONF": "/home/user/conf", "OPENSSL_MODULES": "/home/user",
        "OPENSSL_ENGINES": "/home/user", "HOSTALIASES": "/home/user/hosts",
        "RES_OPTIONS": "ndots:9", "LOCALDOMAIN": "user.example", "TZ": ":/etc/shadow",
        "LOCPATH": "/home/user", "LD_PRELOAD": "/home/user/x.so", "SWIFT_BACKTRACE": "enable=yes",
        "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/home/user/bus", "PATH": "/home/user/bin",
        "SQLITE_TMPDIR": "/home/user", "STAGEPACK_LAUNCH": String(repeating: "x", count: 65),
        "an unknown one": "x",
    ]

    @Test func aPrivilegedProcessTrustsNoVariableThatNamesAPath() {
        let trusted = ProcessEnvironment.trusted(Self.hostile, isPrivileged: true)
        #expect(trusted == ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"])
    }

    @Test func anOrdinaryProcessTrustsItsUser() {
        let trusted = ProcessEnvironment.trusted(Self.hostile, isPrivileged: false)
        #expect(trusted == Self.hostile)
    }

    @Test(arguments: [
        ("STAGEPACK_SOCKET", ""), ("STAGEPACK_OFFLINE", "1"), ("STAGEPACK_HOOK_DEADLINE", "5"),
        ("https_proxy", "http://proxy.example:3128"), ("NO_PROXY", "example.org"),
        ("STAGEPACK_LAUNCH", "6f1d2a0e-launch"), ("STAGEPACK_SESSION", "s"),
        ("NOTIFY_SOCKET", "/run/systemd/notify"), ("DPKG_MAINTSCRIPT_NAME", "postinst"),
        ("DPKG_ROOT", "/target"), ("TERM", "dumb"), ("NO_COLOR", "1"), ("JOURNAL_STREAM", "8:4711"),
    ])
    func aPrivilegedProcessTrustsHarmlessVariables(name: String, value: String) {
        let trusted = ProcessEnvironment.trusted([name: value], isPrivileged: true)
        #expect(trusted[name] == value)
    }
}
