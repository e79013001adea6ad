import Glibc
import StageContainer
import StageEngine
import StageExtension
import StageModel
package import StageSystem
import StageTransfer
import SystemPackage

extension StagingRequest {
    /// Returns the sandbox of a process that carries out the request for the daemon; creates the container's
    /// directory.
    ///
    /// - Returns: Write access to the container; read access to the system's container, to the registrations,
    ///   the root and the local manifests that the request names, to certificates, and to the files for name
    ///   resolution; execute access to this program, the system's programs, and the application's downloader
    ///   extension.
    /// - Throws: ``FileError`` if the container is not known or cannot be created.
    package func sandbox() throws(FileError) -> ProcessSandbox {
        guard let container = target.knownContainer else {
            throw FileError("open", path: "the container", errno: .noSuchFileOrDirectory)
        }
        // Creates the directory as ``Container`` does, before the sandbox forbids changes outside of it.
        _ =
            try geteuid() == 0
            ? Directory.make(container, exactly: .directory) : Directory.make(container)
        var sandbox = ProcessSandbox(
            readable: ExtensionHost.systemFiles + Self.systemFiles + target.files
                // Packs of the system's container are not staged again for the user.
                + target.containersForReading.filter { $0 != container },
            executable: ExtensionHost.systemPrograms + (try Self.mappedPrograms()),
            writable: [container]
        )
        // Root could read the secrets of other users in /etc.
        if geteuid() != 0 { sandbox.readable.append("/etc") }
        if let authorities = options.transfer.certificateAuthorities {
            sandbox.readable.append(authorities)
        }
        if let program = target.registration?.downloaderExtension {
            sandbox.executable += ExtensionHost.files(of: program)
        }
        return sandbox
    }

    /// The files that libraries read for connections, at the paths of all distributions.
    private static let systemFiles: [FilePath] = [
        "/etc/ca-certificates", "/etc/gai.conf", "/etc/host.conf", "/etc/hosts",
        "/etc/pki/ca-trust",
        "/etc/pki/tls/cert.pem", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/protocols",
        "/etc/resolv.conf", "/etc/services", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
        "/etc/ssl/certs", "/proc", "/run/NetworkManager/no-stub-resolv.conf",
        "/run/NetworkManager/resolv.conf", "/run/connman", "/run/netconfig", "/run/resolvconf",
        "/run/systemd/resolve",
        "/var/lib/ca-certificates",
    ]

    /// Returns the paths of this program, its loader and its libraries: it starts itself to decode archives.
    private static func mappedPrograms() throws(FileError) -> [FilePath] {
        let maps = try File.open(reading: "/proc/self/maps").readAll(limit: 4 << 20)
        var paths: Set<String> = []
        for line in String(decoding: maps, as: UTF8.self).split(separator: "\n") {
            guard let start = line.firstIndex(of: "/") else { continue }
            paths.insert(String(line[start...]))
        }
        return paths.sorted().map { FilePath($0) }
    }
}

extension StagingTarget {
    /// The files that determine what is staged: registrations and the targets of their links, the root, and
    /// the folders of local manifests, which also contain their packs.
    fileprivate var files: [FilePath] {
        let folders = RegistrationFolders(environment: environment).folders
        // A folder that cannot be read has no registrations.
        let applications = (try? RegistrationLocations.applications(in: folders)) ?? []
        var files = folders
        for id in applications { files += RegistrationLocations.files(of: id, in: folders) }
        if case .root(let path) = registration?.trust { files.append(FilePath(path)) }
        for text in registration?.manifestURLs ?? manifests {
            guard let path = URLReference(text).filePath else { continue }
            files.append(FilePath(path).removingLastComponent())
        }
        return files
    }
}
