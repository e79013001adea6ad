import BackgroundTransfer
import Foundation
import Testing

/// Source code that sets properties without effect on a session of the daemon.
struct SettingsTests {
    @Test func settingsOfApplesClassKeepTheirValues() {
        let configuration = URLSessionConfiguration.background(withIdentifier: "s")
        configuration.networkServiceType = .background
        configuration.httpShouldUsePipelining = true
        configuration.urlCache = nil
        configuration.protocolClasses = [URLProtocol.self]
        configuration.shouldUseExtendedBackgroundIdleMode = true
        configuration.multipathServiceType = .handover
        configuration.allowsUltraConstrainedNetworkAccess = true
        configuration.usesClassicLoadingMode = false
        configuration.enablesEarlyData = true
        configuration.tlsMinimumSupportedProtocolVersion = .TLSv12
        configuration.tlsMaximumSupportedProtocolVersion = .TLSv13
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.httpCookieAcceptPolicy = .never
        configuration.httpShouldSetCookies = false
        configuration.httpCookieStorage = nil
        configuration.urlCredentialStorage = nil
        let copy = configuration.copy() as? URLSessionConfiguration
        #expect(copy?.networkServiceType == .background)
        #expect(copy?.multipathServiceType == .handover)
        #expect(copy?.httpShouldUsePipelining == true)
        #expect(copy?.protocolClasses?.count == 1)
        #expect(copy?.shouldUseExtendedBackgroundIdleMode == true)
        #expect(copy?.allowsUltraConstrainedNetworkAccess == true)
        #expect(copy?.usesClassicLoadingMode == false && copy?.enablesEarlyData == true)
        #expect(copy?.requestCachePolicy == .reloadIgnoringLocalCacheData)
        #expect(copy?.httpCookieAcceptPolicy == .never && copy?.httpShouldSetCookies == false)
    }
}
