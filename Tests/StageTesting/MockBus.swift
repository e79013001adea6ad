import StageSystem
import Synchronization
import SystemPackage
package import Testing

/// A message bus of the test's own, with stand-ins for the services of a desktop.
///
/// The bus is Debian's `dbus-daemon`, the services are those of `python3-dbusmock`, one process each:
///
/// ```swift
/// @Suite(.directory, .mockBus) struct SomeTests {
///     @Test func aMeteredNetworkIsSeen() throws {
///         let bus = try MockBus.required()
///         try bus.start(.networkManager)
///         try bus.set("Metered", of: .networkManager, to: .number(1))
///         // What is tested is given 'bus.address'.
///     }
/// }
/// ```
package final class MockBus: Sendable {
    /// An object whose properties can be set, and the service that exports it.
    package enum Object: String, Sendable, CaseIterable {
        /// `org.freedesktop.NetworkManager`.
        case networkManager
        /// `org.freedesktop.UPower`.
        case power
        /// `org.freedesktop.UPower.PowerProfiles`.
        case powerProfiles
        /// `net.hadess.PowerProfiles`.
        case formerPowerProfiles
    }

    /// The value of a property, by its type on the bus.
    package enum Value: Hashable, Sendable {
        /// `b`.
        case flag(Bool)
        /// `u`.
        case number(UInt32)
        /// `d`.
        case real(Double)
        /// `s`, without characters that JSON escapes.
        case text(String)
        /// `as`, likewise.
        case texts([String])
    }

    private struct State {
        var daemon: MockProcess?
        var services: [String: MockProcess] = [:]
    }

    /// The bus of the running test.
    @TaskLocal static var current: MockBus?

    /// The address of the bus, the same each time it is started.
    package let address: String
    private let directory: Directory
    private let state = Mutex(State())

    /// The bus of the running test, which must have the trait ``Testing/Trait/mockBus``.
    package static func required() throws -> MockBus {
        try #require(current, "the test needs the trait '.mockBus'")
    }

    /// Creates a bus for a socket in the directory, without starting it.
    init(in directory: Directory) throws {
        self.directory = directory
        address = "unix:path=\(directory.path)/bus"
        try directory.write(Array(Self.configuration(address).utf8), to: "bus.conf", durably: false)
        try directory.write(Array(Self.service.utf8), to: "service.py", durably: false)
    }

    /// Starts the bus without services.
    package func start() throws {
        let daemon = try MockProcess([
            "/bin/sh", "-c", Self.daemon, "sh", "\(directory.path)/bus.conf",
        ])
        _ = try Self.explain { () throws(MockProcess.Failure) in try daemon.readLine() }
        state.withLock { $0.daemon = daemon }
    }

    /// Kills the bus and its services; its socket stays behind, as after a crash.
    package func kill() {
        // The lock is released before the test waits for the processes.
        let state = state.withLock { state in
            defer { state = State() }
            return state
        }
        _ = consume state
    }

    /// Suspends the bus: connections are accepted, but receive no responses.
    package func freeze() throws { try send("STOP") }

    /// Continues the bus after ``freeze()``.
    package func thaw() throws { try send("CONT") }

    private func send(_ signal: String) throws {
        let daemon = try #require(state.withLock { $0.daemon }, "the bus is not running")
        try daemon.write(signal)
        _ = try daemon.readLine()
    }

    /// Starts the service that has an object, with the properties that its template gives it.
    package func start(_ object: Object) throws {
        let service = try MockProcess([
            "/usr/bin/python3", "\(directory.path)/service.py", address, object.serviceName,
            object.template,
        ])
        _ = try Self.explain { () throws(MockProcess.Failure) in try service.readLine() }
        state.withLock { $0.services[object.serviceName] = service }
    }

    /// Starts NetworkManager and UPower of a machine on mains power, whose connection to the internet is not metered.
    package func startWithoutRestrictions() throws {
        try start(.networkManager)
        try start(.power)
        try set("Connectivity", of: .networkManager, to: .number(4))
        try set("Metered", of: .networkManager, to: .number(2))
        try set("OnBattery", of: .power, to: .flag(false))
    }

    /// Ends the service that has an object.
    package func stop(_ object: Object) {
        let service = state.withLock { $0.services.removeValue(forKey: object.serviceName) }
        _ = consume service
    }

    /// Sets a property, which it adds if necessary, and emits a signal about the change.
    package func set(_ property: String, of object: Object, to value: Value) throws {
        let service = state.withLock { $0.services[object.serviceName] }
        let running = try #require(service, "'\(object.serviceName)' is not running")
        let location = "\"\(object.path)\", \"\(object.serviceName)\""
        try running.write("[\(location), \"\(property)\", \(value.json)]")
        _ = try running.readLine()
    }

    /// Runs a closure, and adds a hint to its error if a program is missing.
    private static func explain(
        _ body: () throws(MockProcess.Failure) -> String
    ) throws -> String {
        do throws(MockProcess.Failure) {
            return try body()
        } catch {
            throw MockProcess.Failure(
                description: "\(error); 'Scripts/dependencies dbus-daemon python3-dbusmock' "
                    + "installs what stands in for a desktop"
            )
        }
    }
}

extension MockBus.Object {
    /// The name of the service on the bus.
    package var serviceName: String {
        switch self {
        case .networkManager: "org.freedesktop.NetworkManager"
        case .power: "org.freedesktop.UPower"
        case .powerProfiles: "org.freedesktop.UPower.PowerProfiles"
        case .formerPowerProfiles: "net.hadess.PowerProfiles"
        }
    }

    fileprivate var path: String {
        switch self {
        case .networkManager: "/org/freedesktop/NetworkManager"
        case .power: "/org/freedesktop/UPower"
        case .powerProfiles: "/org/freedesktop/UPower/PowerProfiles"
        case .formerPowerProfiles: "/net/hadess/PowerProfiles"
        }
    }

    /// The template of python-dbusmock, or the path of an object without one.
    fileprivate var template: String {
        switch self {
        case .networkManager: "networkmanager"
        case .power: "upower"
        case .powerProfiles: path
        case .formerPowerProfiles: "power_profiles_daemon"
        }
    }
}

extension MockBus.Value {
    /// The type, and the value.
    fileprivate var json: String {
        switch self {
        case .flag(let value): "[\"b\", \(value)]"
        case .number(let value): "[\"u\", \(value)]"
        case .real(let value): "[\"d\", \(value)]"
        case .text(let value): "[\"s\", \"\(value)\"]"
        case .texts(let values):
            "[\"as\", [\(values.map { "\"\($0)\"" }.joined(separator: ", "))]]"
        }
    }
}

extension MockBus {
    /// Exits with the daemon once the other end of its standard input is closed.
    private static let daemon = """
        dbus-daemon --config-file="$1" --nofork --nopidfile --print-address=1 2>/dev/null &
        daemon=$!
        while read -r signal; do
            kill -s "$signal" "$daemon"
            echo sent
        done
        kill -9 "$daemon"
        wait "$daemon" 2>/dev/null
        """

    /// Returns the configuration of a bus on which all users may do everything.
    private static func configuration(_ address: String) -> String {
        """
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
         "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
          <type>custom</type>
          <listen>\(address)</listen>
          <auth>EXTERNAL</auth>
          <policy context="default">
            <allow send_destination="*" eavesdrop="true"/>
            <allow eavesdrop="true"/>
            <allow own="*"/>
          </policy>
        </busconfig>
        """
    }

    /// Offers a service, reports that, and sets a property for each line of its input.
    private static let service = """
        import json, os, sys
        import dbus, dbus.bus, dbus.mainloop.glib, dbus.service
        import dbusmock, dbusmock.mockobject
        from gi.repository import GLib

        dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
        address, name, template = sys.argv[1:]
        bus = dbus.bus.BusConnection(address)
        # A name of its own first: who sees the one that counts finds the objects there.
        early = dbus.service.BusName(name + '.Early', bus)
        if template.startswith('/'):
            path, interface = template, name
        else:
            module = dbusmock.mockobject.load_module(template)
            path, interface = module.MAIN_OBJ, getattr(module, 'MAIN_IFACE', '')
        main = dbusmock.mockobject.DBusMockObject(early, path, interface, {}, '/dev/null')
        dbusmock.mockobject.objects[path] = main
        if not template.startswith('/'):
            main.AddTemplate(template, {})

        types = {'b': dbus.Boolean, 'u': dbus.UInt32, 'd': dbus.Double, 's': dbus.String,
                 'as': lambda value: dbus.Array(value, signature='s')}

        def set_property(path, interface, property, value):
            kind, plain = value
            mock = dbusmock.get_object(path)
            mock.props.setdefault(interface, {})[property] = types[kind](plain)
            mock.EmitSignal(dbus.PROPERTIES_IFACE, 'PropertiesChanged', 'sa{sv}as',
                            [interface, {property: types[kind](plain)}, []])

        def take_line(source, condition):
            line = sys.stdin.readline()
            if not line:
                os._exit(0)
            set_property(*json.loads(line))
            print('set', flush=True)
            return True

        owned = dbus.service.BusName(name, bus)
        GLib.io_add_watch(0, GLib.IO_IN | GLib.IO_HUP, take_line)
        print('ready', flush=True)
        GLib.MainLoop().run()
        """
}

/// Runs each test with a bus of its own, which is started.
package struct MockBusTrait: TestTrait, SuiteTrait, TestScoping {
    /// Tests inside of a suite each get their own bus.
    package let isRecursive = true

    /// Starts a bus in the test's directory, runs the test and kills the bus with its services.
    package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        let bus = try MockBus(in: TemporaryDirectory.required())
        try bus.start()
        defer { bus.kill() }
        try await MockBus.$current.withValue(bus) { try await function() }
    }
}

extension Trait where Self == MockBusTrait {
    /// Gives each test a message bus in ``MockBus/required()``; to follow the trait `.directory`.
    package static var mockBus: Self { Self() }
}
