import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Registrations of the system, as other users see them.
@Suite(.server, .directory, .rootInMountNamespace)
struct SystemRegistrationTests {
    @Test func aRegistrationOfRootIsReadableByAllUsersUnderAnyMask() async throws {
        var machine = try await SharedMachine()
        let folder = machine.installed.folder
        let parent = folder.removingLastComponent()
        try Directory.open(parent.removingLastComponent()).removeTree("stagepack")
        let file = machine.installed.world.directory
        try file.write(machine.installed.registration.json(), to: "new.json", durably: false)
        let wrapper = machine.installed.world.program.wrapper
        machine.installed.world.program.wrapper =
            ["/bin/sh", "-c", #"umask 077; exec "$@""#, "sh"] + wrapper
        let path = file.path.appending("new.json").string
        #expect(try await machine.rootForAll(["app", "register", path]).status == 0)
        #expect(try Directory.open(folder).status().mode == 0o755)
        let listed = try await machine.userForAll(["app", "list"])
        #expect(listed.status == 0)
        #expect(listed.output.contains("net.example.wallpaper  1.0"), "\(listed)")
    }

    @Test func aFolderThatAUserMayNotReadIsAFindingOfDoctorAlone() async throws {
        let machine = try await SharedMachine()
        unsafe #expect(chmod(machine.installed.folder.string, 0o700) == 0)
        let listed = try await machine.userForAll(["app", "list"])
        #expect(listed.status == 0 && listed.error == "", "\(listed)")
        let doctor = try await machine.userForAll(["doctor"])
        let hint = "as root, run 'chmod 755 /etc/stagepack /etc/stagepack/apps.d'"
        #expect(doctor.output.contains(hint), "\(doctor)")
    }
}
