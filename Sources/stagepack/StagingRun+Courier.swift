import StageEngine
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension StagingRun {
    /// Runs `body` with options by which a daemon fetches the archives, where there is one and it can
    /// do what the options ask for.
    func withCourier<Value: Sendable>(
        _ options: StagerOptions,
        _ body: @escaping @Sendable (StagerOptions) async -> Value
    ) async -> Value {
        guard !isDryRun, !session.isOffline, options.transfer.isPlain(session.environment)
        else {
            return await body(options)
        }
        let application = session.registration?.application.description
        return await DaemonCourier.with(
            application ?? "manifest",
            handler: application.flatMap(Self.handler),
            allowedDomains: options.allowedDomains
        ) {
            var options = options
            options.courier = $0
            return await body(options)
        }
    }

    /// The command that completes the staging of an application.
    private static func handler(_ application: String) -> [String]? {
        let link = try? Directory.open("/proc/self").link("exe")
        return link.map { [$0, "prefetch", "--app", application, "--event", "periodic"] }
    }
}

extension TransferConfiguration {
    /// Whether nothing is asked for that a daemon is not told.
    ///
    /// It has proxies and authorities of its own, and no user's credentials. An authority that the
    /// environment names is no wish of the user; what the daemon then cannot have, the engine gets.
    fileprivate func isPlain(_ environment: [String: String]) -> Bool {
        let usual = environment["CURL_CA_BUNDLE"] ?? environment["SSL_CERT_FILE"]
        return bearerTokens.isEmpty && netrc == nil && bandwidth == nil
            && certificateAuthorities?.string == usual && proxies.http == nil
            && proxies.https == nil
    }
}
